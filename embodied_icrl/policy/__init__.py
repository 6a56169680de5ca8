"""The Sink-KV transformer policy: memory, attention, encoders and action heads."""

from embodied_icrl.policy.attention import sink_attention
from embodied_icrl.policy.batch import StepBatch
from embodied_icrl.policy.cache import KVCache
from embodied_icrl.policy.config import EncoderConfig, PolicyConfig
from embodied_icrl.policy.past import Past
from embodied_icrl.policy.policy import Policy
from embodied_icrl.policy.stream import TokenStream

__all__ = [
    "EncoderConfig",
    "KVCache",
    "Past",
    "Policy",
    "PolicyConfig",
    "StepBatch",
    "TokenStream",
    "sink_attention",
]
