// The page's script. It adds new approvals without a reload, copies texts, shows local and relative times, and asks for
// confirmation before irreversible actions. Every page also works without the script.
"use strict";

(() => {
  const body = document.body;
  // Times are relative to the service's clock, because the browser's clock may be wrong.
  const skew = body.dataset.now ? Number(body.dataset.now) * 1000 - Date.now() : 0;
  const announcer = document.querySelector("[data-announce]");

  const announce = (text) => {
    if (!announcer) return;
    announcer.textContent = "";
    // The announcer is emptied first, because a screen reader would not read an unchanged text again.
    setTimeout(() => { announcer.textContent = text; }, 50);
  };

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  };

  // Times

  const localTime = new Intl.DateTimeFormat(undefined, {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
  });

  // Formats a time difference like `time_distance` in `datetime.rs`.
  const distance = (then, now) => {
    const future = then > now;
    const seconds = Math.floor(Math.abs(then - now) / 1000);
    if (seconds < 60) return future ? "in less than a minute" : "just now";
    let text;
    if (seconds < 3600) text = `${Math.floor(seconds / 60)} min`;
    else if (seconds < 172800) text = `${Math.floor(seconds / 3600)} h`;
    else text = `${Math.floor(seconds / 86400)} days`;
    return future ? `in ${text}` : `${text} ago`;
  };

  const tellTimes = (within) => {
    const now = Date.now() + skew;
    for (const time of within.querySelectorAll("time[data-relative]")) {
      const then = Date.parse(time.dateTime);
      const text = distance(then, now);
      if (time.textContent !== text) time.textContent = text;
      time.title = localTime.format(then);
    }
    for (const time of within.querySelectorAll("time[data-exact]")) {
      const text = localTime.format(Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // Copying

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // The clipboard needs a secure origin and a permission. The old copy command needs neither.
      const area = element("textarea", "sr");
      area.value = text;
      body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      return copied;
    }
  };

  const offerCopies = (within) => {
    for (const button of within.querySelectorAll("button[data-copy]")) button.hidden = false;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const label = button.dataset.label ?? button.textContent;
    button.dataset.label = label;
    const copied = await copy(button.dataset.copy);
    button.focus();
    button.textContent = copied ? "Copied" : "Select and copy by hand";
    announce(button.textContent);
    clearTimeout(button.restore);
    button.restore = setTimeout(() => { button.textContent = label; }, 2000);
  });

  document.addEventListener("focusin", (event) => {
    if (event.target.matches("[data-select]")) event.target.select();
  });

  // Confirmations, and forms that are sent once

  const ask = (question, action) => new Promise((resolve) => {
    const dialog = element("dialog");
    const text = element("p", "", question);
    text.id = "question";
    dialog.setAttribute("aria-labelledby", "question");
    const cancel = element("button", "", "Cancel");
    const go = element("button", "danger", action);
    const buttons = element("div");
    buttons.append(cancel, go);
    dialog.append(text, buttons);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "go");
    });
    cancel.addEventListener("click", () => dialog.close(""));
    go.addEventListener("click", () => dialog.close("go"));
    body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const question = form.dataset.confirm;
    if (question) {
      event.preventDefault();
      const button = form.querySelector("button[type=submit]");
      if (!(await ask(question, button.textContent.trim()))) {
        button.focus();
        return;
      }
      form.submit();
    }
    if (form.method !== "post") return;
    // The button is disabled after the form was sent, so that a second click does not send the form again.
    setTimeout(() => {
      for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = true;
    });
  });

  // Selects or deselects all checkboxes of a list.

  for (const button of document.querySelectorAll("[data-select-all]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const boxes = [...document.querySelectorAll(`input[type=checkbox][form="${button.form.id}"]:enabled`)];
      const all = boxes.every((box) => box.checked);
      for (const box of boxes) box.checked = !all;
    });
  }

  // If the URL's fragment names a folded element, unfolds the element.

  const unfold = () => {
    const named = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (named instanceof HTMLDetailsElement) named.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
  });

  // A cap is either an amount or the checkbox for no limit.

  document.addEventListener("input", (event) => {
    const cap = event.target.closest(".cap");
    if (!cap) return;
    const box = cap.querySelector("input[type=checkbox]");
    const amount = cap.querySelector("input[type=text]");
    if (event.target === amount && amount.value) {
      box.checked = false;
    } else if (event.target === box && box.checked) {
      amount.dataset.before = amount.value;
      amount.value = "";
    } else if (event.target === box) {
      amount.value = amount.dataset.before ?? amount.defaultValue;
      amount.focus();
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const open = event.target.closest?.("details.pop[open]");
    if (!open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });

  // Pending approvals

  const WATCHED = 3000;
  const UNWATCHED = 15000;
  const live = document.querySelector("[data-live]");
  const badge = document.querySelector("[data-badge]");
  const title = document.title;
  const facts = new WeakMap();
  // The entity tag of the list on the page. The server sends the list only if the tag changed.
  let tag = live?.dataset.tag ?? null;
  let failures = 0;
  let timer = null;

  // Returns a card's content without its times, which the script updates.
  const factsOf = (card) => [...card.querySelectorAll("[data-facts]")];
  const saying = (card) => factsOf(card).map((part) => part.innerHTML).join("").replace(/(<time[^>]*>)[^<]*/g, "$1");

  const remember = (card) => facts.set(card, saying(card));

  const enliven = (within) => {
    tellTimes(within);
    offerCopies(within);
  };

  const count = (waiting, atLeast) => {
    if (!badge) return;
    const text = atLeast ? `${waiting}+` : `${waiting}`;
    badge.hidden = waiting === 0;
    badge.querySelector("[data-number]").textContent = text;
    document.title = waiting === 0 ? title : `(${text}) ${title}`;
  };

  // Whether the user is working with this card. Such a card stays where it is.
  const inUse = (card) => card.contains(document.activeElement) || card.querySelector("details").open
    || card.querySelector("[name=approval]").checked || card.querySelector("textarea").value !== "";

  const settle = (card) => {
    if (!inUse(card)) {
      card.remove();
      return;
    }
    if (card.classList.contains("settled-elsewhere")) return;
    card.classList.add("settled-elsewhere");
    for (const button of card.querySelectorAll(".verdict button, [name=approval]")) button.disabled = true;
    card.querySelector("form").prepend(element("p", "warning", "This was decided elsewhere, or is out of time."));
    announce("A payment that you were looking at was decided elsewhere, or is out of time.");
  };

  const arrive = (cards) => {
    const texts = cards.map((card) => {
      const [amount, who, what] = [".ask-amount", ".ask-who", ".ask-what"]
        .map((part) => card.querySelector(part).textContent.trim());
      return `${amount}: ${who}, ${what}`;
    });
    if (texts.length > 0) announce(`New, waiting for you. ${texts.join(". ")}`);
  };

  const show = (html) => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const freshList = fresh.querySelector("[data-waiting]");
    if (!freshList) return;
    count(Number(freshList.dataset.waiting), "atLeast" in freshList.dataset);
    const list = live?.querySelector("[data-waiting]");
    if (!list) return;

    const known = new Map([...list.children].map((card) => [card.dataset.approval, card]));
    const arrived = [];
    let next = null;
    // Cards are inserted from the end of the list, so that a known card is not moved. Moving a card would take away its
    // focus.
    for (const card of [...freshList.children].reverse()) {
      const id = card.dataset.approval;
      const old = known.get(id);
      known.delete(id);
      if (old) {
        const said = saying(card);
        const parts = factsOf(old);
        if (facts.get(old) !== said && !parts.some((part) => part.contains(document.activeElement))) {
          factsOf(card).forEach((part, place) => { parts[place].innerHTML = part.innerHTML; });
          facts.set(old, said);
          enliven(old);
        }
        next = old;
      } else {
        const added = document.importNode(card, true);
        remember(added);
        enliven(added);
        added.classList.add("arrived");
        list.insertBefore(added, next);
        arrived.unshift(added);
        next = added;
      }
    }
    known.forEach(settle);
    list.dataset.waiting = freshList.dataset.waiting;
    live.querySelector("[data-none]").hidden = list.children.length > 0;
    live.querySelector("[data-selection]").hidden = list.children.length === 0;
    const more = live.querySelector("[data-more]");
    const freshMore = fresh.querySelector("[data-more]");
    if (more && freshMore && more.innerHTML !== freshMore.innerHTML && !more.contains(document.activeElement)) {
      more.innerHTML = freshMore.innerHTML;
    }
    arrive(arrived);
  };

  const ended = () => {
    const banner = element("div", "message warn banner");
    banner.setAttribute("role", "alert");
    const link = element("a", "", "Sign in again");
    link.href = `/dashboard/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
    banner.append(element("span", "", "Your session has ended. "), link);
    body.append(banner);
  };

  const poll = async () => {
    timer = null;
    try {
      const answer = await fetch(live?.dataset.live ?? "/dashboard/approvals/waiting?only=count", {
        headers: tag ? { "If-None-Match": tag } : {},
        cache: "no-store",
        credentials: "same-origin",
        signal: AbortSignal.timeout(8000),
      });
      if (answer.status === 401) {
        ended();
        return;
      }
      if (answer.status === 200) {
        const html = await answer.text();
        tag = answer.headers.get("ETag");
        show(html);
      }
      failures = answer.ok || answer.status === 304 ? 0 : failures + 1;
    } catch {
      failures += 1;
    }
    again();
  };

  const again = () => {
    const pace = live && !document.hidden ? WATCHED : UNWATCHED;
    timer = setTimeout(poll, Math.min(pace * 2 ** Math.min(failures, 4), 60000));
  };

  if (badge) {
    live?.querySelectorAll("[data-approval]").forEach(remember);
    if (badge.dataset.waitingCount === undefined) {
      poll();
    } else {
      count(Number(badge.dataset.waitingCount), "atLeast" in badge.dataset);
      again();
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden || timer === null) return;
      clearTimeout(timer);
      poll();
    });
  }

  // Scrolls the navigation of a narrow window to the current page. `scrollIntoView` would also move the place where
  // keyboard navigation starts (Chromium 148).
  const here = document.querySelector(".top nav [aria-current]");
  if (here) {
    const nav = here.closest("nav");
    const [inner, outer] = [here.getBoundingClientRect(), nav.getBoundingClientRect()];
    nav.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
  }

  const zone = document.querySelector("[data-zone]");
  if (zone) zone.textContent = new Intl.DateTimeFormat().resolvedOptions().timeZone;

  enliven(document);
  // An error message gets the focus, so that it is read first.
  document.querySelector("[data-problem]")?.focus();
  setInterval(() => tellTimes(document), 20000);

  // Removes the notification from the URL, so that a reload does not show the notification again.
  if (document.querySelector("[data-notice]")) {
    const address = new URL(location.href);
    address.searchParams.delete("notice");
    history.replaceState(null, "", address);
  }
})();
