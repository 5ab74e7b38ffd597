"""The EAGLE head: one dense layer that continues from its own features."""

from jakiro.heads.jakiro.evidence import ExpertEvidenceHead


class EagleHead(ExpertEvidenceHead):
    """A dense layer, which counts as one expert."""
