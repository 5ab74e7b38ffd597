"""Import paths of the last release still work, with a warning."""

import subprocess
import sys

PATHS = {
    "jakiro.drafting.base": "jakiro.drafters.base",
    "jakiro.drafting.heads": "jakiro.drafters.head",
    "jakiro.drafting.merged": "jakiro.drafters.merged",
    "jakiro.drafting.parallel": "jakiro.drafters.parallel",
    "jakiro.drafting.growing": "jakiro.drafters.tree_growth",
    "jakiro.methods.medusa": "jakiro.drafters.medusa",
}
OLD_CODE = """
import sys, warnings
import jakiro.generator
assert not {"jakiro.drafting", "jakiro.methods"} & sys.modules.keys(), "the package imports an old path"
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    from jakiro.drafting.base import Drafter, Method
    from jakiro.drafting import heads
    from jakiro.methods import METHODS
    import jakiro.methods.medusa
warned = [(str(each.message).split()[0], each.filename) for each in caught if each.category is DeprecationWarning]
print(warned)
import jakiro.drafters.base, jakiro.drafters.head, jakiro.drafters.registry
assert Drafter is jakiro.drafters.base.Drafter and heads is jakiro.drafters.head
assert METHODS is jakiro.drafters.registry.METHODS
"""


def test_old_import_paths_return_the_same_modules_and_warn_the_caller():
    paths = "".join(f"import {old}, {new}; assert {old} is {new}\n" for old, new in PATHS.items())
    run = subprocess.run([sys.executable, "-c", OLD_CODE + paths], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[('jakiro.drafting', '<string>'), ('jakiro.methods', '<string>')]"
