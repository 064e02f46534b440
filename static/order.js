// Sends the order form, again and again while the network fails, always with the same key. Nothing depends on this: the
// server makes one order of one form.

const TRIES = 8;
const PATIENCE = 15000; // ms for one try; the server answers within 10 s
const LONGEST_PAUSE = 16000; // ms
const LONGEST_OBEYED = 60; // s of Retry-After
const ONE_PRESS = 3000; // ms; two presses within it are one

let run = null; // the submission under way
let kept = {}; // its key, for a reload
try {
  kept = sessionStorage;
} catch {} // forbidden by the visitor

const find = (what, where = document) => where.querySelector(what);
const form = () => find('form.order');
const parse = (text) => new DOMParser().parseFromString(text, 'text/html');

function say(state) {
  const busy = ['sending', 'trying'].includes(state);
  if (!busy) run = null;
  if (!form()) return;
  const [progress, button, stop] = ['.progress', '[type=submit]', '.stop'].map((part) => find(part, form()));
  progress.textContent = progress.dataset[state] ?? '';
  progress.dataset.state = state;
  const back = !busy && button.disabled && [document.body, stop].includes(document.activeElement);
  button.disabled = busy;
  stop.hidden = state !== 'trying';
  if (back) button.focus();
}

// A page that came instead of an order. The address stays the form's: F5 and Back send nothing.
function show(page) {
  const main = document.adoptNode(find('main', page));
  run = null;
  delete kept.attempt;
  document.title = page.title;
  find('main').replaceWith(main);
  total();
  scrollTo(0, 0);
  const first = find('[autofocus]', main) ?? main;
  first.tabIndex = -1;
  first.focus();
}

function total() {
  if (!form()) return;
  const box = find('.total');
  const wanted = [...form().querySelectorAll('[data-price]')].filter(({ value }) => /^0*[1-9]\d*$/.test(value));
  const { unit, digits } = (wanted[0] ?? box).dataset;
  const sum = wanted.reduce((sum, { dataset, value }) => sum + dataset.price * value, 0);
  box.hidden = sum > Number.MAX_SAFE_INTEGER || wanted.some(({ dataset }) => dataset.unit !== unit);
  find('output', box).value = `${(sum / 10 ** digits).toFixed(digits)}\u00a0${unit}`;
}

// One try: the answer and its page, or nothing if the network failed.
async function send(url, fields) {
  const net = (run.net = new AbortController());
  setTimeout(() => net.abort(), PATIENCE);
  try {
    const answer = await fetch(url, { method: 'POST', body: new URLSearchParams(fields), signal: net.signal });
    return { answer, page: parse(answer.redirected ? '' : await answer.text()) };
  } catch {
    return {};
  }
}

async function place(sent) {
  const mine = (run = {});
  const fields = new FormData(sent); // what is typed later is for another time
  kept.attempt = fields.get('idempotency_key');
  for (let tries = 1; ; tries++) {
    const trying = send(sent.action, fields);
    if (tries === 1) say('sending');
    const { answer, page } = await trying;
    if (run !== mine) return; // stopped
    if (answer?.redirected) return location.assign(answer.url);
    const ours = page && find('main#main', page);
    const asked = Number(answer?.headers.get('retry-after')) || 0;
    // The shop never says 200 here; a hotel's log-in page does.
    const later = !answer || answer.ok || [408, 429, 502, 503, 504].includes(answer.status);
    if (!later || tries === TRIES || asked > LONGEST_OBEYED) {
      if (ours) return show(page);
      if (later) return say('failed');
      delete kept.attempt;
      return sent.submit(); // let the browser show what it is
    }
    const token = ours && find('[name=form_token]', ours)?.value;
    if (token) fields.set('form_token', (sent.form_token.value = token));
    say('trying');
    const backoff = Math.min(500 * 2 ** tries, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
    await new Promise((done) => {
      mine.wake = done;
      setTimeout(done, Math.max(backoff, asked * 1000));
    });
    if (run !== mine) return;
  }
}

// After a reload or a crash: what became of it?
async function recall() {
  if (!kept.attempt || !form()) return false;
  const path = `/orders/attempts/${encodeURIComponent(kept.attempt)}`;
  const answer = await fetch(path, { method: 'HEAD' }).catch(() => null);
  if (!answer || answer.status >= 500) return false;
  delete kept.attempt;
  if (answer.status === 404) return false; // it never arrived
  location.replace(path);
  return true;
}

// A page out of the back/forward cache has used its pair up.
async function renew() {
  const old = form();
  const answer = old && (await fetch('/form-tokens', { method: 'POST' }).catch(() => null));
  if (answer?.status !== 201 || old !== form() || run) return;
  const pair = await answer.json();
  for (const name in pair) if (old[name]) old[name].value = pair[name];
  old.again?.remove();
}

// Instead of the waiting page's reload, which makes screen readers begin anew.
async function watch() {
  const answer = await fetch(location.href).catch(() => null);
  const page = parse((await answer?.text().catch(() => '')) ?? '');
  if (find('main', page) && !find('.waiting', page)) location.replace(answer.url);
  else setTimeout(watch, 1000);
}

addEventListener('pageshow', async ({ persisted }) => {
  if (persisted) say('');
  if (!form()) delete kept.attempt; // arrived
  total();
  const reload = find('[http-equiv=refresh]');
  if (reload) {
    stop();
    reload.remove();
    watch();
  } else if (!(await recall()) && persisted) renew();
});
addEventListener('online', () => run?.wake?.());
document.addEventListener('input', total);
document.addEventListener('click', ({ target }) => {
  if (!target.closest('.stop')) return;
  run?.net.abort();
  run?.wake?.();
  say('stopped');
});
document.addEventListener('submit', (event) => {
  const { target, timeStamp } = event;
  const ours = target === form();
  if (ours || timeStamp - target.sent < ONE_PRESS) event.preventDefault();
  else target.sent = timeStamp;
  if (ours && !run) place(target);
});
