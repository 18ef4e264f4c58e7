"""What the demo asks the model, and what it asks in vain."""

from tasks.job import GenerateJob

_PROMPTS = (
    ("How many days are in a week?", 16),
    ("Name three fruits.", 20),
    ("What is the opposite of hot?", 16),
    ("What is the boiling point of water?", 20),
    ("Why is the sky blue?", 32),
    ("What is a GPU used for?", 32),
    ("What is a queue in computer science?", 24),
    ("Write a Python function that adds two numbers.", 24),
    ("Write a short poem about the sea.", 32),
    ("Begin a story about a lighthouse keeper.", 32),
    ("Write a headline about rain.", 16),
    ("What does a baker do?", 24),
)


def prompts(model: str, enqueued_at: str) -> list[GenerateJob]:
    """Return the demo's jobs; without randomness, so that their texts are about the same each time."""
    return [
        GenerateJob.model_validate(
            {
                "job_id": f"demo-{number:02d}",
                "model": model,
                "prompt": prompt,
                "max_tokens": max_tokens,
                "parameters": {"temperature": 0},
                "enqueued_at": enqueued_at,
            }
        )
        for number, (prompt, max_tokens) in enumerate(_PROMPTS, start=1)
    ]


def bad_job(model: str) -> tuple[GenerateJob, str]:
    """Return a job that the model's configuration does not allow, and what is wrong with it."""
    job = GenerateJob(job_id="demo-bad", model=model, prompt="Write a long novel.", max_tokens=100_000)
    return job, "asks for more tokens than the configuration allows"
