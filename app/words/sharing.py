"""The words about what people take away or bring: recordings, opened files and saved ones."""

BROWSER = {
    "recordings_hint": (
        "A recording replays a measured run: same view, same numbers, no model needed. "
        "A handout is the recording as one file that plays from disk, on a phone too, without a network."
    ),
    "recording_badge": "Recording · {device} · {date}",
    "opened_badge": "Opened file · {device} · {date}",
    "recording_link": "Link to step {step}",
    "recordings_none": "No recordings are shipped with this copy.",
    "save_handout": "Save handout",
    "open_trace": "Open a trace…",
    "drop_hint": "or drop a file here; it stays in this browser",
    "save": "Save…",
    "save_json": "Trace, json",
    "save_csv": "Candidates, csv",
    "save_html": "Replay page, html",
    "save_png": "Result picture, png",
    "save_tree_png": "Tree picture, png",
    "save_rounded": "The server no longer keeps this answer; the file holds the digits that the page shows.",
    "save_warning": "The file contains your question and the answer.",
    "not_trace_json": "This file is not a trace: it is not JSON.",
    "not_trace_field": "This file is not a trace: the field “{field}” is missing.",
    "not_trace_shape": "This file is not a trace: {reason}.",
    "trace_version": "This trace uses format {found}; this page reads 1 and 2.",
    "file_too_large": "The file has {size} MB; the limit is 20 MB.",
}
