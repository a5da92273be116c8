"""checkov, a linter of security, on the template; its exceptions are there, with reasons."""

import json
import re
import shutil
import subprocess

import pytest

from rlzoo_plus.cloud.template import template_path

EXCEPTION = re.compile(r"- id: (CKV\w+)\n +comment: (.+)")


def test_each_exception_has_a_reason():
    text = template_path().read_text()
    found = EXCEPTION.findall(text)
    assert len(found) == text.count("CKV_")
    assert all(len(reason) > 20 for _, reason in found)


@pytest.mark.slow
def test_template_has_no_finding_of_checkov():
    if (program := shutil.which("checkov")) is None:
        pytest.skip("checkov is not installed; it needs an environment of its own")
    words = ["-f", str(template_path()), "--framework", "cloudformation", "-o", "json"]
    done = subprocess.run(
        [program, *words, "--skip-download"], capture_output=True, text=True, timeout=600
    )
    results = json.loads(done.stdout)["results"]
    assert [check["check_id"] for check in results["failed_checks"]] == []
    assert results["parsing_errors"] == []
    assert len(results["passed_checks"]) > 50
    # None that no longer applies.
    skipped = {check["check_id"] for check in results["skipped_checks"]}
    assert skipped == {name for name, _ in EXCEPTION.findall(template_path().read_text())}
