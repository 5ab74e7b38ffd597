"""Jakiro heads (arXiv 2502.06282): one layer whose mixture of experts predicts the target's next features."""

from jakiro.heads.jakiro.config import JakiroConfig
from jakiro.heads.jakiro.published import convert, recognise
from jakiro.heads.kind import HeadKind
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layer_learning import start_layer, whitening

JAKIRO = HeadKind(
    config=JakiroConfig,
    network=LayerHead,
    recognise=recognise,
    convert=convert,
    start=start_layer,
    whitening=whitening,
)
