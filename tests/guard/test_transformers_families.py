"""Tiny models of the ``transformers`` library train as without the guard, and nothing is reported.

No weights are downloaded: every model is built from a configuration. Skipped, loudly, where the
library is not installed.
"""

import random

import pytest
import torch

from nabla_core.severity import Severity
from nabla_guard import guard

transformers = pytest.importorskip(
    "transformers", reason="pip install transformers to run the families of real models"
)

pytestmark = pytest.mark.slow
STEPS = 5
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TWO_SIDED = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
PICTURE = {"image_size": 16, "patch_size": 4, "num_channels": 3}


def tokens(low=3):
    return torch.randint(low, 64, (4, 12))


def causal():
    ids = tokens()
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": padding()}


def padding():
    mask = torch.ones(4, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return mask


def masked():
    ids = tokens()
    labels = ids.masked_fill(torch.rand(ids.shape) > 0.3, -100)
    labels[:, 0] = ids[:, 0]
    return {"input_ids": ids, "labels": labels, "attention_mask": padding()}


def pair():
    return {"input_ids": tokens(), "attention_mask": padding(), "labels": tokens()}


def picture():
    return {"pixel_values": torch.randn(4, 3, 16, 16), "labels": torch.randint(0, 3, (4,))}


def picture_and_text():
    return {
        "input_ids": tokens(),
        "attention_mask": padding(),
        "pixel_values": torch.randn(4, 3, 16, 16),
        "return_loss": True,
    }


def sound():
    return {"input_values": torch.randn(4, 400), "labels": torch.randint(0, 3, (4,))}


def spectrogram():
    return {"input_features": torch.randn(4, 16, 40), "labels": tokens()}


FAMILIES = {
    "Bert": ("BertConfig", "BertForMaskedLM", SMALL, masked),
    "Roberta": ("RobertaConfig", "RobertaForMaskedLM", SMALL, masked),
    "Electra": ("ElectraConfig", "ElectraForMaskedLM", {**SMALL, "embedding_size": 32}, masked),
    "Albert": ("AlbertConfig", "AlbertForMaskedLM", {**SMALL, "embedding_size": 16}, masked),
    "DistilBert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
        masked,
    ),
    "Deberta": (
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        masked,
    ),
    "GPT2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
        causal,
    ),
    "GPTNeoX": ("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL, causal),
    "OPT": (
        "OPTConfig",
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
        causal,
    ),
    "Bloom": ("BloomConfig", "BloomForCausalLM", {**SMALL, "n_layer": 2, "n_head": 4}, causal),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {**SMALL, "num_key_value_heads": 2}, causal),
    "Mistral": ("MistralConfig", "MistralForCausalLM", {**SMALL, "num_key_value_heads": 2}, causal),
    "Qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**SMALL, "num_key_value_heads": 2}, causal),
    "Gemma": (
        "GemmaConfig",
        "GemmaForCausalLM",
        {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
        causal,
    ),
    "Phi": ("PhiConfig", "PhiForCausalLM", SMALL, causal),
    "Mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4, "output_router_logits": True},
        causal,
    ),
    "Mamba": (
        "MambaConfig",
        "MambaForCausalLM",
        {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        causal,
    ),
    "T5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 0},
        pair,
    ),
    "Bart": ("BartConfig", "BartForConditionalGeneration", TWO_SIDED, pair),
    "Marian": ("MarianConfig", "MarianMTModel", TWO_SIDED, pair),
    "Pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", TWO_SIDED, pair),
    "Whisper": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {**TWO_SIDED, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 40},
        spectrogram,
    ),
    "Wav2Vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2ForSequenceClassification",
        {
            **SMALL,
            "conv_dim": (16, 16),
            "conv_kernel": (10, 3),
            "conv_stride": (5, 2),
            "num_feat_extract_layers": 2,
            "num_labels": 3,
            "classifier_proj_size": 16,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "mask_time_prob": 0.0,
        },
        sound,
    ),
    "ViT": (
        "ViTConfig",
        "ViTForImageClassification",
        {**SMALL, **PICTURE, "num_labels": 3},
        picture,
    ),
    "DeiT": (
        "DeiTConfig",
        "DeiTForImageClassification",
        {**SMALL, **PICTURE, "num_labels": 3},
        picture,
    ),
    "Swin": (
        "SwinConfig",
        "SwinForImageClassification",
        {**PICTURE, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2}
        | {"num_labels": 3},
        picture,
    ),
    "ResNet": (
        "ResNetConfig",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
        | {"num_labels": 3},
        picture,
    ),
    "ConvNext": (
        "ConvNextConfig",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "num_labels": 3},
        picture,
    ),
    "CLIP": (
        "CLIPConfig",
        "CLIPModel",
        {
            "text_config": SMALL,
            "vision_config": {**SMALL, **PICTURE},
            "projection_dim": 16,
        },
        picture_and_text,
    ),
}


def train(family, watched):
    """Train five steps; return the losses and what was said out loud."""
    config, model, sizes, batch = FAMILIES[family]
    torch.manual_seed(0)
    random.seed(0)
    network = getattr(transformers, model)(getattr(transformers, config)(**sizes)).train()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)

    def steps():
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = network(**batch()).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
        return losses

    if not watched:
        return steps(), []
    with guard() as monitor:
        losses = steps()
    report = monitor.report()
    assert not report.problems, report.problems
    loud = [issue for issue in report.issues if issue.severity >= Severity.LOW]
    return losses, [f"{issue.rule} {issue.message}" for issue in loud]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_trains_unchanged_and_unreported(family):
    plain, _ = train(family, watched=False)
    losses, loud = train(family, watched=True)
    assert torch.isfinite(torch.stack(plain)).all()
    assert torch.equal(torch.stack(losses), torch.stack(plain))
    assert not loud
