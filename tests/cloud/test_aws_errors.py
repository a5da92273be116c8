"""Errors of AWS, and of what is between: one line, with what was tried."""

import pytest

from rlzoo_plus.cloud import aws

pytest.importorskip("botocore", reason="needs the extra aws")


def _told(error):
    with pytest.raises(aws.CloudError) as told, aws.errors("start the jobs"):
        raise error
    assert "\n" not in str(told.value)
    return str(told.value)


def test_an_answer_that_is_not_of_aws_is_an_error_in_a_line():
    from botocore.parsers import ResponseParserError

    text = _told(ResponseParserError("invalid XML received:\n<html>\nLog in first</html>"))
    assert text.startswith("cannot start the jobs: the answer is not one of AWS: invalid XML")


def test_an_answer_that_lacks_something_is_an_error_in_a_line():
    assert (
        _told(KeyError("jobId")) == "cannot start the jobs: AWS's answer lacks KeyError('jobId')."
    )
