"""The tables of docs/clients.md are those that the tests of clients fill."""

from tests.inference.service.clients.compatibility import CLIENTS, PAGE, recorded, written

REMEDY = "python -m tests.inference.service.clients.compatibility writes it"


def test_every_client_has_outcomes():
    outcomes = recorded()
    assert list(outcomes) == [client.title for client in CLIENTS]
    for calls in outcomes.values():
        for outcome in calls.values():
            assert outcome.partition(": ")[0] in ("works", "refused", "not offered")


def test_the_tables_are_up_to_date():
    assert written(PAGE.read_text(), recorded()) == PAGE.read_text(), REMEDY
