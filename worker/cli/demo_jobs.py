"""What the demo asks the model, and what it asks in vain."""

from tasks.job import GenerateJob

_PROMPTS = (
    ("What is the capital of France?", 24),
    ("Name three rivers in Europe.", 32),
    ("Write a haiku about autumn.", 40),
    ("Translate to German: Good morning, how are you?", 24),
    ("What is 7 times 8? Answer with the number only.", 8),
    ("Explain in one sentence why the sky is blue.", 48),
    ("Give me a name for a cat that likes books.", 24),
    ("List the primary colours.", 32),
    ("Write a one-line Python function that adds two numbers.", 40),
    ("What do bees make?", 24),
    ("Continue: Once upon a time, in a small village,", 48),
    ("Who wrote Romeo and Juliet?", 24),
)


def prompts(model: str) -> list[GenerateJob]:
    """Return the demo's jobs; each has a seed, so that they are the same each time."""
    return [
        GenerateJob(
            job_id=f"demo-{number:02d}",
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            parameters={"temperature": 0.3, "seed": number},
        )
        for number, (prompt, max_tokens) in enumerate(_PROMPTS, start=1)
    ]


def bad_job(model: str) -> tuple[GenerateJob, str]:
    """Return a job that the model's configuration does not allow, and what is wrong with it."""
    job = GenerateJob(
        job_id="demo-bad", model=model, prompt="Paint me a horse.", max_tokens=16, parameters={"colour": "blue"}
    )
    return job, 'a parameter "colour", which this model is not configured to take'
