"use strict";

const $ = (id) => document.getElementById(id);
const views = ["asking", "result", "ended"];
let state = null; // classes, examples, questions, lines, last
let current = 0; // the question that is shown
let busy = false; // an answer is on its way: nothing else is taken until it is on the disk

async function call(path, told) {
  const how = told === undefined ? {} : { method: "POST", body: JSON.stringify(told) };
  let reply;
  try {
    reply = await fetch(path, how);
  } catch {
    throw new Error("adamatch does not answer. Run the same command again: every answer is kept.");
  }
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function view(name) {
  for (const each of views) $(each).hidden = each !== name;
}

function say(text) {
  $("status").textContent = text;
}

// The number of a class, by which it can be found; none where names have digits of their own.
function numberOf(label) {
  return state.classes.some((name) => /\d/.test(name)) ? "" : String(label + 1);
}

// The key of a class: its own name where all classes are single digits, else its number among at most nine.
function keyOf(label) {
  if (state.classes.every((name) => /^\d$/.test(name))) return state.classes[label];
  return state.classes.length <= 9 ? numberOf(label) : "";
}

function open(from) {
  const count = state.questions.length;
  for (let step = 0; step < count; step++) {
    const number = (from + step) % count;
    if (!state.questions[number].answer) return number;
  }
  return -1;
}

function show(number) {
  const answered = state.questions.filter((each) => each.answer).length;
  $("progress").max = Math.max(1, state.questions.length);
  $("progress").value = answered;
  $("count").textContent = `${answered} of ${state.questions.length} answered`;
  $("known").textContent = answered ? state.lines[0] : "";
  if (number < 0) return showResult();
  current = number;
  const { guesses, answer } = state.questions[number];
  view("asking");
  $("question").textContent = `Image ${number + 1} of ${state.questions.length}: what is it?`;
  $("image").alt = `Image ${number + 1} of ${state.questions.length}`;
  $("missing").hidden = true;
  $("image").src = `/image/${number}`;
  zoom(false);
  $("search").value = "";
  $("guesses").replaceChildren(...[...new Set(guesses)].map((label, place) => guess(label, place, guesses, answer)));
  list();
  const { kind } = answer || {};
  $("none").setAttribute("aria-pressed", kind === "none");
  $("unsure").setAttribute("aria-pressed", kind === "unsure");
  $("undo").disabled = state.last === null;
  $("back").disabled = number === 0;
  $("next").disabled = number + 1 === state.questions.length;
  $("question").focus({ preventScroll: true });
  const following = open(number + 1);
  if (following >= 0 && following !== number) new Image().src = `/image/${following}`;
}

function guess(label, place, guesses, answer) {
  const made = element("button", state.classes[label], { type: "button", "aria-pressed": chosen(answer, label) });
  const both = guesses.length > 1 && guesses[0] === guesses[1];
  const who = both ? "the model, and without adaptation" : place ? "without adaptation" : "the model";
  made.append(element("small", who));
  if (!place) {
    made.className = "first";
    made.lastChild.append(element("kbd", "⏎"));
  }
  made.onclick = () => answerWith({ kind: "class", label });
  const item = element("li", "");
  item.append(made);
  return item;
}

function chosen(answer, label) {
  return Boolean(answer && answer.kind === "class" && answer.label === label);
}

// Classes whose number or name fits what was typed: names that begin with it come first.
function matches() {
  const typed = $("search").value.trim().toLowerCase();
  const every = state.classes.map((name, label) => ({ name: name.toLowerCase(), label }));
  const rank = ({ name, label }) =>
    name === typed ? 0 : numberOf(label) === typed ? 1 : name.startsWith(typed) ? 2 : name.includes(typed) ? 3 : 4;
  const fitting = every.filter((each) => rank(each) < 4);
  if (typed) fitting.sort((a, b) => rank(a) - rank(b) || a.label - b.label);
  return fitting.map((each) => each.label);
}

function list() {
  const found = matches();
  const { answer } = state.questions[current];
  const typed = $("search").value.trim();
  const first = found.length ? `Enter: ${state.classes[found[0]]}` : "No class has this in its name";
  $("found").textContent = typed ? first : "";
  $("classes").replaceChildren(
    ...found.map((label) => {
      const name = state.classes[label];
      const pick = element("button", name, { type: "button", class: "name", "aria-pressed": chosen(answer, label) });
      if (keyOf(label) || numberOf(label)) pick.append(element("kbd", keyOf(label) || numberOf(label)));
      pick.onclick = () => answerWith({ kind: "class", label });
      const item = element("li", "");
      item.append(pick);
      if (state.examples[label]) {
        const look = element("button", "Examples", { type: "button", class: "look", "aria-label": `Examples of ${name}` });
        look.onclick = () => examples(label);
        item.append(look);
      }
      return item;
    }),
  );
}

async function change(path, told, from, heard) {
  if (busy) return;
  busy = true;
  try {
    state = await call(path, told);
    $("trouble").hidden = true;
    say(heard);
    show(from());
  } catch (error) {
    $("trouble").textContent = error.message;
    $("trouble").hidden = false;
  } finally {
    busy = false;
  }
}

function answerWith({ kind, label }) {
  const heard = kind === "class" ? state.classes[label] : kind === "none" ? "None of these" : "Cannot tell";
  return change("/answer", { question: current, kind, label }, () => open(current + 1), `${heard}: kept.`);
}

function undo() {
  if (state.last === null) return;
  const last = state.last;
  return change("/answer", { question: last, kind: null }, () => last, "Taken back.");
}

function move(step) {
  const number = current + step;
  if (!busy && number >= 0 && number < state.questions.length) show(number);
}

function zoom(on) {
  $("frame").classList.toggle("zoomed", on);
  $("zoom").setAttribute("aria-pressed", on);
}

function examples(label) {
  $("of").textContent = `Labelled images: ${state.classes[label]}`;
  const count = state.examples[label];
  const pictures = Array.from({ length: count }, (_, number) =>
    element("img", "", { src: `/example/${label}/${number}`, alt: `Example ${number + 1} of ${state.classes[label]}` }),
  );
  $("pictures").replaceChildren(...pictures);
  $("examples").showModal();
}

function showResult() {
  view("result");
  $("lines").replaceChildren(...state.lines.map((line) => element("li", line)));
  $("more").disabled = !state.more;
  $("revoke").disabled = state.last === null;
  $("again").disabled = !state.questions.length;
  $("done").textContent = state.questions.length ? "All questions are answered" : "There is nothing to ask";
  $("done").focus();
}

async function finish() {
  try {
    await call("/finish", {});
    view("ended");
  } catch (error) {
    $("trouble").textContent = error.message;
    $("trouble").hidden = false;
  }
}

document.addEventListener("keydown", (event) => {
  if (!state || $("asking").hidden || $("examples").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === $("search");
  const empty = !$("search").value;
  const onButton = event.target.tagName === "BUTTON";
  const keys = {
    Enter: () => {
      const found = matches();
      if (!empty && !found.length) return;
      answerWith({ kind: "class", label: empty ? state.questions[current].guesses[0] : found[0] });
    },
    Escape: () => {
      $("search").value = "";
      zoom(false);
      list();
    },
  };
  if (empty) {
    const short = { Backspace: undo, ArrowLeft: () => move(-1), ArrowRight: () => move(1) };
    short["-"] = () => answerWith({ kind: "none" });
    short["?"] = () => answerWith({ kind: "unsure" });
    state.classes.forEach((_, label) => {
      if (keyOf(label)) short[keyOf(label)] = () => answerWith({ kind: "class", label });
    });
    Object.assign(keys, short);
  }
  if (event.key === "Enter" && onButton) return; // it presses the button
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    if (!event.repeat) act();
  } else if (!typing && event.key.length === 1 && event.key !== " ") {
    $("search").focus(); // what is typed goes there
  }
});

$("search").oninput = list;
$("none").onclick = () => answerWith({ kind: "none" });
$("unsure").onclick = () => answerWith({ kind: "unsure" });
$("undo").onclick = undo;
$("revoke").onclick = undo;
$("back").onclick = () => move(-1);
$("next").onclick = () => move(1);
$("again").onclick = () => show(0);
$("more").onclick = () => change("/more", {}, () => open(0), "More questions.");
$("finish").onclick = finish;
$("close").onclick = () => $("examples").close();
$("zoom").onclick = () => zoom(!$("frame").classList.contains("zoomed"));
$("image").onclick = () => zoom(!$("frame").classList.contains("zoomed"));
$("image").onload = () => $("image").classList.toggle("pixels", $("image").naturalWidth <= 96);
$("image").onerror = async () => {
  const reply = await fetch($("image").src).catch(() => null);
  $("missing").textContent = reply && !reply.ok ? await reply.text() : "The image cannot be shown.";
  $("missing").hidden = false;
};

change("/state", undefined, () => open(0), "");
