"""The webhook's certificate is made and renewed without anybody's help."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509

from tests.builders import NOW
from trtllm_operator.cluster.certificate import LIFETIME, RENEWAL, Certificate

NAMES = ("hook.system.svc", "localhost")


def test_a_new_certificate_is_for_its_names_and_tolerates_a_slow_clock() -> None:
    made = Certificate.make(NAMES, NOW)
    assert made.fault(NAMES, NOW) is None
    parsed = x509.load_pem_x509_certificate(made.certificate)
    assert parsed.not_valid_before_utc < NOW < parsed.not_valid_after_utc
    assert b"PRIVATE KEY" in made.key


@pytest.mark.parametrize(
    ("names", "later", "fault"),
    [
        (NAMES, LIFETIME - RENEWAL, None),
        (NAMES, LIFETIME - RENEWAL + timedelta(seconds=1), "it expires at 2027-01-02 14:03Z"),
        ((*NAMES, "other.system.svc"), timedelta(), "it is not for other.system.svc"),
    ],
)
def test_a_certificate_is_renewed_in_its_last_third_or_for_other_names(
    names: tuple[str, ...], later: timedelta, fault: str | None
) -> None:
    assert Certificate.make(NAMES, NOW).fault(names, NOW + later) == fault


def test_garbage_and_a_foreign_key_are_replaced() -> None:
    good, other = Certificate.make(NAMES, NOW), Certificate.make(NAMES, NOW)
    broken = [
        Certificate(certificate=b"garbage", key=good.key),
        Certificate(certificate=good.certificate, key=b"garbage"),
        Certificate(certificate=good.certificate, key=other.key),
    ]
    assert good.is_usable
    for certificate in broken:
        assert not certificate.is_usable
        assert certificate.fault(NAMES, NOW) == "it cannot be read, or its key is another's"
