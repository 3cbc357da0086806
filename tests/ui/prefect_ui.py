"""Prefect's UI, driven as a person would: what is on a page is found by its words, not by its markup where that helps.

Prefect 3.9 ships two UIs; `/` opens the second one, and so does this. What the form of a custom run looks like there:

- A property is a block with a label (`Eval Config (Optional)`), help, and a `fieldset` that holds its control.
- A model is a card of properties. A list is a card of items with a button `Add item` at its end.
- A union (`str | None`) has a tab for each type, and shows the control of the chosen one.
- A dict is a JSON editor, and goes to the server as text that is parsed there.
- What the server refuses is said in a toast; after that the form sends nothing more until the page is opened again.
- What can be done with a run (cancel, resume, retry) is in the menu at the top right of its page, and asks in a dialog.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, Locator, Page, Request, Response, expect

PATIENCE_MS = 60_000
"""How long a page of a busy machine may take to show what is waited for: with six processes to a core, and one request that
failed, the form was there after 24 s."""
HEARD = 20
"""Failed requests and errors of scripts, the last ones, that a failure tells of."""
CUT_OFF = "net::ERR_NETWORK_CHANGED"
"""Chromium breaks off what it loads, also from loopback, when a network interface comes or goes, as with a Docker engine."""
OPENINGS = 10
"""Times that a page which was broken off is opened again."""


class PrefectUI:
    """One tab of a browser at one Prefect server."""

    def __init__(self, page: Page, address: str) -> None:
        """`address`: the server's, without a path."""
        self.page = page
        self.address = address.rstrip("/")
        self._heard: deque[str] = deque(maxlen=HEARD)
        self._cut_off = False
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self._heard.append(str(error)))
        page.on("requestfailed", lambda request: self._hear(request, request.failure))
        page.on("response", self._hear_answer)

    def _hear_answer(self, answer: Response) -> None:
        if answer.status >= 400:
            self._hear(answer.request, f"status {answer.status}")

    def _hear(self, request: Request, failure: str | None) -> None:
        if request.url.startswith(self.address):
            self._heard.append(f"{request.method} {request.url}: {failure}")
            self._cut_off = self._cut_off or failure == CUT_OFF

    def see(self, what: Locator) -> None:
        """Wait until `what` is on show. AssertionError: it isn't, with what the page shows instead and which requests failed."""
        try:
            expect(what).to_be_visible(timeout=PATIENCE_MS)
        except AssertionError as error:
            error.add_note(f"{self.page.url} shows:\n{self.page.locator('body').inner_text()[:3000]}")
            error.add_note("\n".join(["the page's errors:", *self._heard]))
            raise

    def open(self, path: str) -> None:
        """Open a page by its path, such as `runs`, and wait until it is quiet."""
        for _ in range(OPENINGS):
            self._cut_off = False
            try:
                self.page.goto(f"{self.address}/v2/{path.lstrip('/')}")
            except Error as error:
                if CUT_OFF not in error.message:
                    raise
                self._cut_off = True
            self.page.wait_for_load_state("networkidle")
            if not self._cut_off:
                return

    def run_form(self, deployment: str) -> RunForm:
        """The form of a custom run of a deployment (its id)."""
        self.open(f"deployments/deployment/{deployment}/run")
        # The buttons come first, the parameters when the deployment's schema is there. The page itself asks again, every few
        # seconds, for what the server refused or didn't answer.
        self.see(self.page.locator("form fieldset label").first)
        return RunForm(self.page)

    def flow_run(self, run: str, tab: str | None = None) -> None:
        """Open a flow run's page (its id), on the tab of that name (`Logs`, `Task Runs`, `Artifacts`, …)."""
        self.open(f"runs/flow-run/{run}")
        shown = self.page.get_by_role("tab", name=tab or "Logs").first
        self.see(shown)
        if tab:
            shown.click()
            self.page.wait_for_load_state("networkidle")

    def resume(self, run: str, answers: Mapping[str, Any] | None = None, *, picture: Path | None = None) -> str:
        """Answer the question of a paused flow run in the dialog that its page opens; what the dialog said.

        `picture`: where to keep how the dialog looks.
        """
        self.flow_run(run)
        dialog = self._dialog("Resume")
        for part in ("fieldset", ".prose"):  # the answer's field and the question come apart
            self.see(dialog.locator(part).first)
        expect(dialog.locator(".prose").first).not_to_be_empty(timeout=PATIENCE_MS)
        said = dialog.inner_text()
        RunForm(self.page, dialog).fill(answers or {})
        if picture:
            self.screenshot(picture)
        dialog.get_by_role("button", name="Resume").click()
        expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
        return said

    def cancel(self, run: str) -> None:
        """Cancel a flow run as its page offers it."""
        self.flow_run(run)
        dialog = self._dialog("Cancel")
        dialog.get_by_role("button", name=re.compile("Cancel (Flow )?Run", re.IGNORECASE)).click()
        expect(dialog).to_be_hidden(timeout=PATIENCE_MS)

    def _dialog(self, item: str) -> Locator:
        """The dialog that an item of the page's menu opens."""
        self.page.get_by_role("button", name="Open menu").first.click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()
        dialog = self.page.get_by_role("dialog").or_(self.page.get_by_role("alertdialog"))
        self.see(dialog)
        return dialog

    def task_run(self, run: str) -> None:
        """Open a task run's page (its id)."""
        self.open(f"runs/task-run/{run}")

    def artifact(self, artifact: str) -> None:
        """Open an artifact's page (its id)."""
        self.open(f"artifacts/artifact/{artifact}")

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows `text` somewhere."""
        self.see(self.page.get_by_text(text).first)

    def screenshot(self, to: Path, *, whole: bool = False) -> Path:
        """Keep a picture of what is on the screen, or of the whole page."""
        to.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=to, full_page=whole)
        return to


class RunForm:
    """The form in which a person starts a deployment with parameters of their own."""

    def __init__(self, page: Page, form: Locator | None = None) -> None:
        """`form`: what holds the fields, where it isn't the page's one form."""
        self.page = page
        self.form = form or page.locator("form")

    def fill(self, parameters: Mapping[str, Any]) -> None:
        """Fill in parameters by name, as deep as they go; what isn't named keeps its default."""
        for name, value in parameters.items():
            self._set(self.field(self.form, name), value)

    def submit(self) -> str:
        """Start the run; its id. AssertionError: the form or the server refused it, with what they say."""
        with self.page.expect_response(lambda response: response.url.endswith("/create_flow_run")) as answer:
            self.page.get_by_role("button", name="Submit").click()
        if answer.value.status != 201:
            raise AssertionError(f"the server refused the run ({answer.value.status}): {answer.value.text()}")
        return str(answer.value.json()["id"])

    def refusal(self) -> str:
        """Press `Submit` on a request that is refused; what the UI says. Afterwards the form is dead: open it again."""
        self.page.get_by_role("button", name="Submit").click()
        said = self.page.locator("[data-sonner-toast]").first
        expect(said).to_be_visible(timeout=PATIENCE_MS)
        return said.inner_text()

    def titles(self) -> list[str]:
        """The labels of all properties on show, in order."""
        return [text.removesuffix(" (Optional)") for text in self.form.locator("label").all_inner_texts()]

    def field(self, scope: Locator, name: str) -> Locator:
        """The fieldset of the property `name` (the parameter's, or the model field's) within `scope`."""
        title = f"({re.escape(name)}|{re.escape(name.replace('_', ' ').title())})"
        label = scope.locator("label").filter(has_text=re.compile(rf"^\s*{title}( \(Optional\))?\s*$")).first
        return label.locator("xpath=ancestor::div[./fieldset][1]/fieldset")

    def _set(self, field: Locator, value: Any) -> None:
        tabs = field.locator(":scope > [data-slot=tabs]")
        if tabs.count():
            tabs.get_by_role("tab", name=_tab(value)).first.click()
            field = tabs.locator("[role=tabpanel][data-state=active] fieldset").first
        editor = field.locator(":scope > div[id] [data-language=json]")
        if editor.count():
            editor.first.click()
            self.page.keyboard.press("ControlOrMeta+a")
            self.page.keyboard.insert_text(
                json.dumps(value)
            )  # typed key by key, the editor would close brackets itself
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                self._set(self.field(field, name), inner)
        elif isinstance(value, bool):
            switch = field.get_by_role("switch").first
            if (switch.get_attribute("aria-checked") == "true") != value:
                switch.click()
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for item in value:
                self._add(field, item)
        elif value is not None:
            field.locator("textarea, input").first.fill(str(value))

    def _add(self, field: Locator, item: Any) -> None:
        card = field.locator(":scope > [data-slot=card]")
        items = card.locator("xpath=./div[./button[@aria-label='Drag to reorder']]")
        already = items.count()
        card.locator(":scope > div > button", has_text="Add item").click()
        expect(items).to_have_count(already + 1)
        added = items.nth(already)
        if isinstance(item, Mapping):
            for name, inner in item.items():
                self._set(self.field(added, name), inner)
        else:
            tab = added.get_by_role("tab", name=_tab(item))
            if tab.count():
                tab.first.click()
            added.locator("textarea, input").first.fill(str(item))


def _tab(value: Any) -> str | re.Pattern[str]:
    """The tab of a union that takes `value`, as the form names types."""
    if isinstance(value, Mapping):
        return re.compile(r"^[A-Z]\w+$(?<!None)")
    return {str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}[type(value)]
