"""The formulas of the lesson's stops in MathML, which browsers draw and read aloud, and their letters."""

FORMULAS = (
    "<mi>T</mi><mo>≳</mo><mfrac><mtext>weights</mtext><mtext>memory speed</mtext></mfrac>",
    (
        "<mi>P</mi>"
        "<mo>=</mo><msub><mi>p</mi><mn>1</mn></msub><mo>·</mo><msub><mi>p</mi><mn>2</mn></msub><mo>⋯</mo>"
        "<msub><mi>p</mi><mi>n</mi></msub>"
    ),
    (
        "<msub><mi>score</mi><mi>x</mi></msub><mo>=</mo><msub><mi>r</mi><mi>x</mi></msub>"
        "<mo>+</mo><munder><mo>∑</mo><mi>e</mi></munder><msub><mi>w</mi><mi>e</mi></msub><mo>·</mo>"
        "<msubsup><mi>s</mi><mi>x</mi><mi>e</mi></msubsup>"
    ),
    (
        "<msub><mi>f</mi><mrow><mi>t</mi><mo>+</mo><mn>2</mn></mrow></msub><mo>=</mo><mi>x</mi>"
        "<mo>+</mo><msub><mi>a</mi><mn>1</mn></msub><mo>·</mo><msub><mi>y</mi><mtext>stronger</mtext></msub>"
        "<mo>−</mo><msub><mi>a</mi><mn>2</mn></msub><mo>·</mo><msub><mi>y</mi><mtext>weaker</mtext></msub>"
    ),
    (
        "<mfrac><mtext>tokens</mtext><mi>s</mi></mfrac><mo>=</mo><mfrac><mrow><mn>1</mn>"
        "<mo>+</mo><munder><mo>∑</mo><mi>i</mi></munder><msup><mi>e</mi>"
        "<msub><mi>score</mi><mi>i</mi></msub></msup></mrow><mrow><msub><mi>T</mi><mtext>draft</mtext></msub>"
        "<mo>+</mo><msub><mi>T</mi><mtext>check</mtext></msub></mrow></mfrac>"
    ),
    (
        "<msub><mi>M</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"
        "<mo>=</mo><mo>{</mo><mtable><mtr><mtd><mn>1</mn></mtd>"
        "<mtd><mtext>if j is i or its ancestor</mtext></mtd></mtr><mtr><mtd><mn>0</mn></mtd>"
        "<mtd><mtext>otherwise</mtext></mtd></mtr></mtable>"
    ),
    "<mtext>tokens</mtext><mo>=</mo><mtext>accepted</mtext><mo>+</mo><mn>1</mn>",
    (
        "<msub><mi>x</mi><mi>t</mi></msub>"
        "<mo>=</mo><munder><mi>argmax</mi><mi>v</mi></munder><mo>(</mo><mi>log</mi>"
        "<msub><mi>p</mi><mi>t</mi></msub><mo>(</mo><mi>v</mi><mo>)</mo>"
        "<mo>+</mo><mi>g</mi><mo>(</mo><mi>seed</mi><mo>,</mo><mi>t</mi><mo>,</mo><mi>v</mi><mo>)</mo><mo>)</mo>"
    ),
    (
        "<mtext>speedup</mtext>"
        "<mo>=</mo><mfrac><mrow><mi>τ</mi><mo>·</mo><mi>T</mi></mrow><mrow>"
        "<msub><mi>T</mi><mtext>draft</mtext></msub>"
        "<mo>+</mo><msub><mi>T</mi><mtext>check</mtext></msub></mrow></mfrac>"
    ),
    "<mi>τ</mi><mo>=</mo><mfrac><mtext>tokens written</mtext><mtext>steps</mtext></mfrac>",
)

# By the place of the stop
LETTERS = {
    2: "w: the router’s weight of an expert, s: its score for token x; r: the part that no expert adds",
    3: "x: the target’s last state, y: an expert’s vector, a: how much of it is added or taken away",
    7: "p: chance of token v; g: its dice, made of seed, position t and v; x: the largest sum wins",
}
