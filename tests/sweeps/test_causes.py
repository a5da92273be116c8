"""The same mistake in many jobs is told once."""

from rlzoo_plus.sweeps.states import tell_causes


def test_a_mistake_is_told_once_with_the_number_of_its_jobs():
    texts = ["gamma=1.5 is above 1"] * 312 + ["unknown algo 'pppo'"]
    assert tell_causes(texts, 10_000) == [
        "312 of 10,000 jobs: gamma=1.5 is above 1",
        "1 of 10,000 jobs: unknown algo 'pppo'",
    ]


def test_what_differs_in_numbers_alone_is_one_cause():
    texts = [f"gamma={value} is above 1" for value in (1.5, 1.6, 2e10, 1.5)]
    assert tell_causes(texts, 9) == [
        "4 of 9 jobs: gamma=1.5 is above 1 (and 2 more like it, with other numbers)"
    ]


def test_names_that_end_in_numbers_stay_apart():
    assert len(tell_causes(["td3 cannot", "td4 cannot", "x_2 cannot", "x_3 cannot"], 4)) == 4


def test_each_line_of_a_job_is_a_cause():
    assert tell_causes(["a\nb", "b"], 2) == ["1 of 2 jobs: a", "2 of 2 jobs: b"]


def test_a_single_job_needs_no_count():
    assert tell_causes(["gamma=1.5 is above 1"], 1) == ["gamma=1.5 is above 1"]


def test_hundreds_of_causes_do_not_fill_the_screen():
    texts = [f"unknown key {'x' * number}" for number in range(100)]
    assert tell_causes(texts, 100)[20:] == ["and 80 more mistakes"]
