"""An audit that could look up nothing has not passed."""

from types import SimpleNamespace

from tests.faults import audit
from tests.faults.audit import verdict

FINE = {"name": "a", "version": "1", "vulns": []}


def test_an_audit_without_its_database_is_an_error_in_one_sentence():
    code, [line] = verdict([{"name": "a", "version": "1", "skip_reason": "not found"}] * 3)
    assert (code, line.startswith("3 of 3 packages could not be looked up")) == (2, True)


def test_a_known_vulnerability_fails_the_audit_and_a_package_of_another_index_does_not():
    assert verdict([FINE] * 20 + [{"name": "torch", "skip_reason": "not found"}])[0] == 0
    hole = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    code, lines = verdict([FINE, hole])
    assert (code, lines[0]) == (1, "b 2: PYSEC-1, fixed in 3")


def test_an_audit_whose_connections_are_refused_says_how_to_fix_it(monkeypatch, capsys):
    said = "requests.exceptions.ProxyError: HTTPSConnectionPool(host='pypi.org'): Max retries exceeded"
    monkeypatch.setattr(
        audit.subprocess, "run", lambda *words, **more: SimpleNamespace(stdout="", stderr=said)
    )
    assert audit.main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "The packages could not be looked up (pip-audit: requests.exceptions.ProxyError), so"
    )
    assert "To fix it: run make audit where" in line
