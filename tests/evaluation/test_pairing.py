"""Which files belong to which label."""

from crac.evaluation.pairing import find_pairs


def test_names_that_begin_alike_are_told_apart(tmp_path):
    labels, folder = tmp_path / "labels", tmp_path / "probabilities"
    labels.mkdir()
    folder.mkdir()
    for name in ("heart", "heart_1", "heart_10"):
        (labels / f"{name}.nii.gz").touch()
    for name in ("heart_0", "heart_1", "heart_10", "heart_2", "heart_1_0", "heart_1_1"):
        (folder / f"{name}.nii.gz").touch()
    cases, problems = find_pairs(folder, labels)
    # heart_1 is the whole of heart_1, so heart has classes 0 and 2 only, and heart_1 comes in two forms.
    assert [case.name for case in cases] == ["heart_10"]
    assert len(problems) == 2
    assert any("classes 0, 2" in problem for problem in problems)
    assert any("more than one form" in problem for problem in problems)
