import pytest

from orchestrator.masking import mask, mask_settings, mask_uri


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:pw@host:5000/x", "http://***@host:5000/x"),
        ("see postgresql://u:p%40ss@db/name, please", "see postgresql://***@db/name, please"),
        ("http://u:p@ss@host/a", "http://***@host/a"),
        ("mysql://u:pa/ss@host/db", "mysql://***@host/db"),
        ("https://ghp_token@github.com/a.git", "https://***@github.com/a.git"),
        ("http://h/p?token=abc&x=1", "http://h/p?token=***&x=1"),
        ("http://h/p?x=1&sig=abc", "http://h/p?x=1&sig=***"),
        ("PASSWORD=hunter2 lr=0.1", "PASSWORD=*** lr=0.1"),
        ('connect(password="hun ter", lr=1)', "connect(password=***, lr=1)"),
        ("AWS_SECRET_ACCESS_KEY=a/b+c", "AWS_SECRET_ACCESS_KEY=***"),
        ('{"api_key": "k-1", "lr": 1}', '{"api_key": "***", "lr": 1}'),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("key AKIAABCDEFGHIJKLMNOP here", "key *** here"),
    ],
)
def test_credentials_in_a_text_are_hidden(text: str, shown: str) -> None:
    assert mask(text) == shown
    assert mask(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://host:5000/path@2x",
        "sqlite:////home/ann/mlflow.db",
        "lr=0.1 max_tokens=512 batch_size=32",
        "mail ann@example.com, 3 of 4 tokens",
        "ValueError: unexpected token: <pad>",
    ],
)
def test_texts_without_credentials_stay_as_they_are(text: str) -> None:
    assert mask(text) == text


def test_an_address_alone_is_masked_whatever_its_password_holds() -> None:
    shown = mask_uri('mysql://ann:it\'s a "<pw>"@host/db')
    assert shown == "mysql://***@host/db"


def test_secret_settings_become_stars_and_others_stay() -> None:
    settings = {
        "lr": 0.1,
        "db": {"password": "p", "url": "http://u:p@h/"},
        "hub_token": "t",
        "apiKey": "k",
        "max_token": 512,
        "pad_token": "<pad>",
        "secret": None,
        "tokenizer": "bert",
        "stores": ["s3://a", "http://u:p@h"],
    }
    assert mask_settings(settings) == {
        "lr": 0.1,
        "db": {"password": "***", "url": "http://***@h/"},
        "hub_token": "***",
        "apiKey": "***",
        "max_token": 512,
        "pad_token": "<pad>",
        "secret": None,
        "tokenizer": "bert",
        "stores": ["s3://a", "http://***@h"],
    }
