"""EAGLE-1 and EAGLE-2 heads (arXiv 2406.16858): one dense layer that goes on with its own features."""

from jakiro.heads.eagle.config import EagleConfig
from jakiro.heads.eagle.published import convert, export, recognise
from jakiro.heads.kind import HeadKind
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layer_learning import start_layer, whitening

EAGLE = HeadKind(
    config=EagleConfig,
    network=LayerHead,
    recognise=recognise,
    convert=convert,
    export=export,
    start=start_layer,
    whitening=whitening,
)
