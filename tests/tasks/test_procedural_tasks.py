import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhf_api.types.model import ProceduralData
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.tasks import generators, procedural
from rlhf_runtime.tasks.metadata import unpack
from rlhf_runtime.tasks.procedural import load_procedural_task, spell_backward, spelling_credit

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml"


WORDS = ("ohmic=", "neon=", "bird=", "bliss=", "bingo=", "chess=", "eker=", "hired=", "baken=")  # drawn on 2026-11-29


def data(dataset: str = "chain_sum", **fields: Any) -> ProceduralData:
    return ProceduralData(**{"dataset": dataset, "train_size": 20, "held_out_size": 5, **fields})


def spelling(**fields: Any) -> ProceduralData:
    three_to_five = {"min_word_len": 3, "max_word_len": 5}
    return data("spell_backward", **{"parameters": three_to_five, "template": "{word}=", **fields})


def test_the_words_of_the_measured_recipe_stay_what_they_were() -> None:
    task = spell_backward(train=6, heldout=3)
    assert task.train_prompts == WORDS[:6]
    assert task.heldout_prompts == WORDS[6:]
    assert task.train_answers == tuple(prompt[-2::-1] for prompt in WORDS[:6])
    assert task.scorer is spelling_credit
    assert task.train_metadata == ()


def test_the_example_manifest_and_the_function_give_the_same_task() -> None:
    manifest = yaml.safe_load(EXAMPLE.read_text())["spec"]["data"]["procedural"]
    data = ProceduralData.model_validate({**manifest, "trainSize": 30, "heldOutSize": 10})
    assert load_procedural_task(data) == spell_backward(train=30, heldout=10)


def test_another_seed_draws_other_words() -> None:
    first, second = spell_backward(train=30, heldout=5), spell_backward(train=30, heldout=5, seed=1)
    assert set(first.train_prompts) != set(second.train_prompts)


@pytest.mark.parametrize("size", [(20, 5), (300, 100)], ids=["few", "many, so that draws repeat"])
def test_no_held_out_prompt_is_trained_on(size: tuple[int, int]) -> None:
    train, heldout = size
    task = load_procedural_task(spelling(train_size=train, held_out_size=heldout))
    prompts = [*task.train_prompts, *task.heldout_prompts]
    assert (len(task.train_prompts), len(task.heldout_prompts)) == size
    assert len(set(prompts)) == len(prompts)


def test_the_template_takes_the_question_and_fields_of_the_metadata() -> None:
    task = load_procedural_task(spelling(template="{{{word_len}}} {question} -> "))
    assert all(prompt.startswith(("{3} Spell", "{4} Spell", "{5} Spell")) for prompt in task.train_prompts)


def test_a_second_load_reads_the_cache_and_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_procedural_task(data())
    monkeypatch.setattr(procedural, "open_dataset", lambda *_, **__: pytest.fail("drawn again"))
    assert load_procedural_task(data()) == first


def test_loading_from_the_cache_does_not_import_reasoning_gym() -> None:
    load_procedural_task(spelling())
    code = (
        "import sys; from rlhf_runtime.tasks.procedural import load_procedural_task;"
        "from rlhf_api.types.model import ProceduralData;"
        f"load_procedural_task(ProceduralData.model_validate_json({spelling().model_dump_json()!r}));"
        "assert not {'reasoning_gym', 'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


REFUSED = {
    "a dataset spelled wrong is suggested": (
        data("spell_backwards"),
        '`spec.data.procedural.dataset`: reasoning-gym has no dataset "spell_backwards"; '
        'did you mean "spell_backward"?',
    ),
    "a dataset like no other gets the list": (data("qqq"), "there are ab, acre,"),
    "a path as a dataset": (data("../../x"), '`spec.data.procedural.dataset`: reasoning-gym has no dataset "../../x"'),
    "a parameter that the dataset does not take": (
        spelling(parameters={"min_word_length": 3}),
        '`spec.data.procedural.parameters.min_word_length`: "spell_backward" does not take it; '
        'did you mean "min_word_len"?',
    ),
    "the size as a parameter": (
        spelling(parameters={"size": 3}),
        "`spec.data.procedural.parameters.size` must not be set: `trainSize` and `heldOutSize` say it",
    ),
    "a value that the dataset refuses": (
        spelling(parameters={"min_word_len": 0}),
        '`spec.data.procedural.parameters`: "spell_backward" refuses them: min_word_len must be positive',
    ),
    "a value of the wrong type": (
        spelling(parameters={"min_word_len": "three"}),
        '`spec.data.procedural.parameters`: "spell_backward" refuses them',
    ),
    "a template field that there is not": (
        spelling(template="{wrod}="),
        "`spec.data.procedural.template`: the problem has no field {wrod}; it has {difficulty}, {question}, "
        "{source_dataset}, {source_index}, {word}, {word_len}",
    ),
    "a template that reaches into a field": (
        spelling(template="{word.__class__}"),
        '`spec.data.procedural.template` must have plain field names in braces, such as {question}: "word.__class__"',
    ),
    "a template with an open brace": (
        spelling(template="{word"),
        "`spec.data.procedural.template` must have matching braces",
    ),
    "a template without a field": (
        spelling(template="word="),
        "`spec.data.procedural.template` must have a field such as {question}",
    ),
    "more problems than there are": (
        spelling(template="{word_len}"),
        '`spec.data.procedural`: "spell_backward" with these parameters and this template gives only 3 different '
        "prompts of the 25 asked for",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_with_the_field(case: str) -> None:
    given, want_message = REFUSED[case]
    with pytest.raises(RlhfError) as caught:
        load_procedural_task(given)
    assert want_message in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> str:
        raise procedural.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(procedural.importlib.metadata, "version", not_installed)
    with pytest.raises(RlhfError, match="pip install reasoning-gym"):
        load_procedural_task(data())


def test_a_failed_draw_leaves_nothing_in_the_cache(own_cache: Path) -> None:
    with pytest.raises(RlhfError):
        load_procedural_task(spelling(template="{word_len}"))
    assert [path for path in own_cache.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("response", "want_credit"),
    [
        pytest.param("dog", 1.0, id="the answer"),
        pytest.param("Dog", 2 / 3, id="the case of a letter counts"),
        pytest.param("dug", 2 / 3, id="two letters of three in place"),
        pytest.param("do", 2 / 3, id="too short"),
        pytest.param("dogs", 0.8, id="all letters and one more"),
        pytest.param("", 0.0, id="nothing"),
    ],
)
def test_spelling_credit(response: str, want_credit: float) -> None:
    assert spelling_credit(response, "dog") == pytest.approx(want_credit)


@pytest.mark.parametrize("answer", ["abcdef", "abcdefg", "abcdefghi", "abcdefghij"])
def test_no_length_gives_a_too_long_answer_full_credit(answer: str) -> None:
    assert spelling_credit(answer + "x", answer) == 0.8


def test_a_verifier_judges_by_the_whole_problem() -> None:
    task = load_procedural_task(data("countdown"))
    entry = unpack(task.train_metadata[0])
    answer = task.train_answers[0]
    assert task.scorer(answer, answer, entry) == 1.0
    assert task.scorer(f"({answer})", answer, entry) == 1.0  # another text, and as right
    assert task.scorer("1 + 1", answer, entry) < 0.1


def test_a_verifier_travels_to_another_process() -> None:
    task = load_procedural_task(data("countdown"))
    verifier = pickle.loads(pickle.dumps(task.scorer))
    assert verifier == task.scorer
    assert verifier(task.train_answers[1], task.train_answers[1], unpack(task.train_metadata[1])) == 1.0


@pytest.mark.parametrize("dataset", ["prime_factorization", "rearc", "simple_equations"])
def test_a_right_answer_is_worth_one_and_nonsense_little(dataset: str) -> None:
    task = load_procedural_task(data(dataset, train_size=2, held_out_size=1))
    for answer, packed in zip(task.train_answers, task.train_metadata, strict=True):
        assert task.scorer(answer, answer, unpack(packed)) == 1.0
        assert task.scorer("nonsense 12", answer, unpack(packed)) <= 0.1


def test_nothing_is_held_out_where_only_the_verifier_knows_what_is_right() -> None:
    task = load_procedural_task(data("rush_hour", train_size=2, held_out_size=1))
    assert task.heldout_prompts == ()
    assert len(task.train_prompts) == 2


def test_every_generator_starts_from_the_same_seed() -> None:
    first, second = (generators.open_dataset("chain_sum", {}, size=3) for _ in range(2))
    assert [entry["question"] for entry in first] == [entry["question"] for entry in second]
