"""Numbers that the script about several workers prints."""

import importlib

workers = importlib.import_module("workers")


def test_what_living_processes_simulated_twice_is_counted_apart_from_what_was_lost_with_a_killed_one(tmp_path):
    log = tmp_path / "log"
    log.write_text("1 a\n1 b\n2 b\n3 c\n1 c\n3 d\n3 e\n3 e\n2 e\n")
    assert workers.again(log, {3}) == (1, 3)  # By living ones: b; because 3 was killed: c once and e twice, but not d.
    assert workers.again(log, set()) == (4, 0)
