"""What an error says, in words and as data."""

from __future__ import annotations

from strop.errors import CheckFailed, UserError


def test_an_error_tells_its_parts_in_order_and_leaves_out_what_nobody_said() -> None:
    error = UserError("It broke.", where=3, got="", fix="mend it")
    assert str(error) == "It broke.\n  where: 3\n  got: \n  try: mend it"
    assert str(CheckFailed("No.")) == "No."


def test_an_error_as_data() -> None:
    error = UserError("It broke.", where=3, expected=4, fix="mend it")
    assert error.as_dict() == {
        "kind": "UserError",
        "what": "It broke.",
        "where": "3",
        "got": None,
        "expected": "4",
        "fix": "mend it",
    }


def test_an_error_that_is_told_elsewhere_is_another_one() -> None:
    error = CheckFailed("No.", where="a", got=1)
    told = error.at("row 2")
    assert (type(told), told.what, told.where, told.got) == (CheckFailed, "No.", "row 2", "1")
    assert error.where == "a"
