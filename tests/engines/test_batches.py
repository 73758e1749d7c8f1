import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_runtime.engines.batches import compute_in_passes, plan_passes, take_rows, trim_padding

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60)), min_size=1, max_size=40)


def batch_of(lengths):
    """Prompts and responses of these lengths, padded; every prompt token is its row's number."""
    rows = torch.arange(len(lengths))
    prompts, responses = torch.tensor(lengths).unbind(1)
    width, columns = int(prompts.max()), int(responses.max()) or 1
    prompt_mask = (torch.arange(width)[None, :] >= width - prompts[:, None]).long()
    response_mask = (torch.arange(columns)[None, :] < responses[:, None]).long()
    return {
        "prompt_ids": rows[:, None] * prompt_mask,
        "prompt_mask": prompt_mask,
        "responses": rows[:, None] * response_mask,
        "response_mask": response_mask,
    }


def padded_tokens(batch, rows):
    cut = trim_padding(take_rows(batch, rows))
    return len(rows) * (cut["prompt_ids"].shape[1] + int(cut["response_mask"].any(dim=0).sum()))


@given(LENGTHS, st.integers(1, 400), st.integers(1, 5))
def test_every_row_is_in_one_pass_of_one_rank_and_no_pass_is_too_large(lengths, max_tokens, ranks):
    batch = batch_of(lengths)
    passes = plan_passes(batch, max_tokens=max_tokens, ranks=ranks)
    assert all(len(shares) == ranks for shares in passes)
    assert sorted(torch.cat([rows for shares in passes for rows in shares]).tolist()) == list(range(len(lengths)))
    for shares in passes:
        for rows in shares:
            assert len(rows) <= 1 or padded_tokens(batch, rows) <= max_tokens
    assert all(len(rows) for shares in passes[:-1] for rows in shares)


@given(LENGTHS, st.integers(1, 400))
def test_results_come_back_in_the_order_of_the_rows(lengths, max_tokens):
    batch = batch_of(lengths)
    of_rows = compute_in_passes(batch, lambda part: part["prompt_ids"].amax(dim=1), max_tokens=max_tokens)
    assert of_rows.tolist() == list(range(len(lengths)))
    of_tokens = compute_in_passes(batch, lambda part: part["responses"] + 0, max_tokens=max_tokens)
    assert torch.equal(of_tokens, batch["responses"])


def test_rows_of_like_length_go_together():
    """Long and short by turns: sorted, a tenth of what is computed is padding, and not nearly half."""
    batch = batch_of([(8, 100) if row % 2 else (8, 10) for row in range(64)])
    real = int(batch["prompt_mask"].sum() + batch["response_mask"].sum())
    computed = sum(padded_tokens(batch, rows) for (rows,) in plan_passes(batch, max_tokens=1000))
    assert real / computed > 0.9
    assert real / batch["prompt_ids"].shape[0] / 108 < 0.6


def test_the_ranks_have_as_much_to_do():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 500, (512, 2), generator=generator).tolist()
    batch = batch_of(lengths)
    shares = zip(*plan_passes(batch, max_tokens=16_384, ranks=4), strict=True)
    tokens = [sum(sum(map(sum, (lengths[row] for row in rows))) for rows in share) for share in shares]
    assert max(tokens) / min(tokens) < 1.02


def test_a_batch_that_fits_stays_in_order():
    batch = batch_of([(2, 1), (2, 3), (1, 2)])
    ((rows,),) = plan_passes(batch, max_tokens=15)
    assert rows.tolist() == [0, 1, 2]
    assert take_rows(batch, rows) is batch
