"""Chat templates: in the configuration they are checked, and messages become prompts by them in a sandbox."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from settings.load import ConfigurationError, settings_from
from tests.acceptance.fleet import SEED
from worker.batch.bad_line import BadLine
from worker.batch.prompts import render

CHATML = (
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<b>Hi</b>"}]


def rendered(template: str, messages: list[dict[str, Any]] = HELLO) -> str:
    """The prompt that a template makes of messages."""
    return render(template, messages, NOW)


def configured(template: str, **models: Any) -> Any:
    """Settings with this template behind every name, but for what ``models`` says of acme/model-1."""
    tree: dict[str, Any] = {**SEED, "runtime_config": {**SEED["runtime_config"], "chat_template": template}}
    return settings_from(tree | ({"models": {"acme/model-1": models}} if models else {}))


class TestRendering:
    def test_messages_become_a_prompt_up_to_the_answer(self) -> None:
        """In order, unescaped, and ending where the assistant begins."""
        assert rendered(CHATML) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<b>Hi</b><|im_end|>\n<|im_start|>assistant\n"
        )

    @pytest.mark.parametrize(
        ("template", "prompt"),
        [
            (
                "{% for m in messages %}\n  {% if loop.last %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}",
                "<b>Hi</b>\n",
            ),
            ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
            ("{{ messages[0] | tojson }}", '{"role": "system", "content": "Be brief."}'),
            ("{{ strftime_now('%d %b %Y') }}", "30 Nov 2026"),
            ("{% generation %}{{ messages[0].role }}{% endgeneration %}", "system"),
            ("{% set bos_token = '<s>' %}{{ bos_token }}{{ tools is defined }}", "<s>False"),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
        ],
    )
    def test_what_models_own_templates_use_is_there(self, template: str, prompt: str) -> None:
        """Whitespace as they expect it, loop controls, JSON without HTML's escapes, the batch's date, their tags."""
        assert rendered(template) == prompt

    def test_a_template_may_refuse_messages(self) -> None:
        """Its words are for the error line alone: they may repeat a message."""
        with pytest.raises(BadLine) as refusal:
            rendered("{{ raise_exception('no ' + messages[0].role) }}")
        assert refusal.value.detail == "no system"
        assert "system" not in refusal.value.message

    def test_a_templates_own_words_can_always_be_written(self) -> None:
        """Half a surrogate pair in them would end the whole batch at the line."""
        with pytest.raises(BadLine) as refusal:
            rendered(r"{{ raise_exception('no \ud800') }}")
        assert refusal.value.detail == "no ?"

    @pytest.mark.parametrize(
        "template",
        [
            "{{ messages.__class__.__mro__ }}",
            "{{ messages.append(1) }}",
            "{{ ''.__class__.__base__ }}",
            "{% for m in messages %}{{ m.content.__init__.__globals__ }}{% endfor %}",
            "{% include '/etc/passwd' %}",
            "{{ 1 // 0 }}",
            "{{ messages[7].role.x }}",
            "{{ range(10000000) }}",
        ],
    )
    def test_a_template_cannot_leave_its_sandbox_and_its_faults_are_the_lines(self, template: str) -> None:
        """Neither Python's inside nor a file is reached, messages stay as they are, and whatever is raised refuses the line."""
        messages = [dict(each) for each in HELLO]
        with pytest.raises(BadLine, match="chat template"):
            rendered(template, messages)
        assert messages == HELLO


class TestConfiguring:
    def test_a_template_is_kept_as_it_is(self) -> None:
        """Each public name has the one that its configuration says."""
        assert configured(CHATML).runtime_for("acme/model-1").chat_template == CHATML
        assert (
            configured(CHATML, chat_template="{{ messages }}").runtime_for("acme/model-1").chat_template
            == "{{ messages }}"
        )

    @pytest.mark.parametrize(
        ("template", "reason"),
        [
            ("{% for m in messages %}", "is no Jinja template: "),
            ("{{ messages | frob }}", "No filter named 'frob'"),
            ("{{ bos_token }}{{ messages }}", "uses bos_token, which it has to set itself: {% set bos_token = '…' %}"),
            (" \n", "must not be empty"),
            ("{% for m in messages %}" * 25 + "{% endfor %}" * 25, "is no Jinja template: "),
            ("{% break %}", "is no Jinja template: "),
            ("{{ messages(a=1, a=2) }}", "is no Jinja template: "),
            ("{{ " + "9" * 5000 + " }}", "is no Jinja template: "),
            ("{{ 10 ** 5000 }}", "is no Jinja template: "),
            ("file:/not/there.jinja", "the file /not/there.jinja cannot be read"),
        ],
    )
    def test_what_is_no_template_is_refused_at_the_start(self, template: str, reason: str) -> None:
        """A worker says so before anything connects, and not each line of a batch afterwards."""
        with pytest.raises(ConfigurationError) as error:
            configured(template)
        (problem,) = error.value.problems
        assert problem.field == "runtime_config.chat_template"
        assert reason in problem.reason

    def test_a_template_can_be_in_a_file_of_its_own(self, tmp_path: Path) -> None:
        """As the models' repositories have it; for all names, or for one."""
        path = tmp_path / "chat_template.jinja"
        path.write_text(CHATML)
        assert configured(f"file:{path}").runtime_config.chat_template == CHATML
        settings = configured("{{ messages }}", chat_template=f"file:{path}")
        assert settings.runtime_for("acme/model-1").chat_template == CHATML
