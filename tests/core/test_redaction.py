import pytest

from nabla_core import redaction
from nabla_core.redaction import redact, redact_tree

SECRETS = {
    "api_key=sk_live_0123456789": "sk_live_0123456789",
    "WANDB_API_KEY: 0123456789abcdef0123": "0123456789abcdef0123",
    '{"password": "hunter2secret"}': "hunter2secret",
    "--hf-token abcdefgh12345": "abcdefgh12345",
    "Authorization: Bearer abc.def-ghi_jkl": "abc.def-ghi_jkl",
    "sk-abcdefghijklmnop1234": "sk-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrstuvwx": "ghp_abcdefghijklmnopqrstuvwx",
    "hf_abcdefghijklmnopqrstuvwx": "hf_abcdefghijklmnopqrstuvwx",
    "AKIAABCDEFGHIJKLMNOP": "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOi.eyJzdWIiOi.SflKxwRJSM": "SflKxwRJSM",
    "postgres://jane:topsecret@db/x": "topsecret",
    "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----": "abc\n",
}


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked(text):
    assert SECRETS[text] not in redact(text)
    assert "[redacted]" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "loss = 0.31 at step 4",
        "tokenizer.embed.weight",
        "model.token_embedding.weight has no gradient",
        "token_count = 5 tokens",
        "rank: 0",
        "aten::exp",
    ],
)
def test_ordinary_words_stay(text):
    assert redact(text) == text


def test_home_user_and_host_are_masked(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/people/jane")
    monkeypatch.setattr(redaction, "_user", lambda: "janedoe")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "gpubox7")
    redaction._private_patterns.cache_clear()
    try:
        text = redact("/srv/people/jane/x.py and /home/other/y by janedoe on gpubox7, janedoes")
    finally:
        redaction._private_patterns.cache_clear()
    assert text == "~/x.py and ~/y by [redacted] on [redacted], janedoes"


def test_trees_are_redacted_keys_included():
    tree = {"token=abcdefgh": ["password=abcdefgh", 3, None, True]}
    assert redact_tree(tree) == {"token=[redacted]": ["password=[redacted]", 3, None, True]}
