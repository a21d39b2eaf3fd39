// SPDX-License-Identifier: Apache-2.0
// The dashboard: asks the daemon's API once a second and shows what it says. Nothing comes from
// elsewhere, nothing is kept but the theme. Names in the answers are other people's text: they
// become text nodes, never markup. Sizes carry their exact bytes (data-bytes). Behind basics.js,
// charts.js and host.js: embed.cmake joins them to one function.

// ---- what is known ------------------------------------------------------------------------------

const state = { partition: '', epoch: null, history: null, events: [], lastEvent: 0, span: 'fine',
  all: {}, sort: { workers: ['pss', -1], holders: ['bytes', -1], arbiter: ['since', -1] } };

function forget() { state.history = null; state.events = []; state.lastEvent = 0; }

for (const button of document.querySelectorAll('[data-span]')) {
  button.addEventListener('click', () => {
    state.span = button.dataset.span;
    for (const b of document.querySelectorAll('[data-span]')) b.setAttribute('aria-pressed',
      String(b === button));
    showHistory();
  });
}
$('partition').addEventListener('change', () => { state.partition = $('partition').value; forget();
  turn(); });

function mergeHistory(fresh) {
  if (!state.history) state.history = { fine: { time: [] }, coarse: { time: [] } };
  for (const ring of ['fine', 'coarse']) {
    const known = state.history[ring], last = known.time.length ? known.time[known.time.length - 1]
      : -1;
    const from = (fresh[ring].time || []).findIndex((t) => t > last);
    if (from < 0) continue;
    for (const [name, values] of Object.entries(fresh[ring])) {
      if (Array.isArray(values)) known[name] = (known[name] || []).concat(values.slice(from))
        .slice(-600);
    }
  }
}

function perSecond(time, counter) {
  return counter.map((c, i) => i && time[i] > time[i - 1] && c >= counter[i - 1]
    ? (c - counter[i - 1]) / (time[i] - time[i - 1]) : 0);
}

function showHistory() {
  const h = state.history && state.history[state.span], span = state.span === 'fine' ? 600 : 6000;
  if (!h || !h.used) return;
  fillChart.limit = h.size[h.size.length - 1];
  fillChart.show({ span, ...h });
  rateChart.show({ span, time: h.time, handoff: perSecond(h.time, h.handoff_n),
    adopt: perSecond(h.time, h.adopt_n), put: perSecond(h.time, h.put_n), get: perSecond(h.time,
    h.get_n) });
}

// A path below the partition is enough where the partition is known.
function below(path) { return path && path.startsWith(`${state.partition}/`)
  ? path.slice(state.partition.length + 1) : path; }

// ---- the parts ----------------------------------------------------------------------------------

function showPartitions(list) {
  const paths = list.map((p) => p.partition), select = $('partition');
  if ([...select.options].map((o) => o.value).join('\n') !== paths.join('\n'))
    select.replaceChildren(...paths.map((path) => make('option', { value: path }, path)));
  if (!paths.includes(state.partition)) { state.partition = paths[0] || ''; forget(); }
  select.value = state.partition;
  $('partition-label').hidden = paths.length < 2;
}

function showDaemon(d, p) {
  setText($('daemon'),
    `${d.version} · pid ${d.pid} · up ${duration(d.time - d.started)} · ` +
    plural(d.clients, 'client', 'clients') + (p ? ` · ${p.partition}` : ''));
  $('daemon').title = `loop: ${d.backend}`;
}

function showNow(p) {
  const percent = p.size ? p.used / p.size * 100 : 0, meter = $('fill');
  $('used').replaceChildren(size(p.used), make('small', {}, p.size ? ` ${percent.toFixed(1)} %`
    : ''));
  $('used').title = `${exact(p.used)} bytes`;
  $('used').dataset.bytes = p.used;
  meter.className = `meter ${percent >= 95 ? 'bad' : percent >= 80 ? 'warn' : ''}`;
  meter.setAttribute('aria-valuenow', percent.toFixed(1));
  meter.setAttribute('aria-valuetext', `${size(p.used)} of ${size(p.size)}`);
  meter.firstElementChild.style.width = `${Math.min(100, percent)}%`;
  $('fill-max').style.left =
    `calc(${p.size ? Math.min(100, p.used_max / p.size * 100) : 0}% - 2px)`;
  setText($('used-of'),
    (p.size ? `of ${size(p.size)}, ${size(p.available)} available` : 'no limit') +
    `; at most ${size(p.used_max)} so far`);
  $('used-of').title =
    `size ${exact(p.size)}, available ${exact(p.available)}, most ${exact(p.used_max)} bytes`;
  setText($('n-stores'), count(p.ledgers.stores));
  setText($('n-objects'), `${count(p.ledgers.objects)} objects`);
  setText($('handoff-rate'), `${rate(p.ledgers.handoff_per_s)}/s`);
  setText($('put-rate'),
    `${rate(p.ledgers.put_per_s)} puts, ${rate(p.ledgers.get_per_s)} gets a second`);
  if (p.survey) showBytes($('ghosts'), p.survey.ghosts);
}

// The bytes on the disk, and what hinders it. Hidden where the partition has no disk tier.
function showTier(t) {
  $('tier-tile').hidden = !t;
  if (!t) return;
  const known = t.path !== undefined, whole = known ? t.used + t.available : 0,
    percent = whole ? t.used / whole * 100 : 0, meter = $('tier-fill');
  $('tier').replaceChildren(known ? size(t.original) : '–',
    make('small', {}, known ? ` in ${plural(t.n_demoted, 'object', 'objects')}` : ''));
  $('tier').dataset.bytes = known ? t.original : '';
  $('tier').title = known
    ? `${exact(t.original)} bytes of memory when they come back; ` +
      `tier files take ${exact(t.used)} bytes` : '';
  meter.className =
    'meter ' + (t.state === 'disk-full' || t.state === 'unavailable' ? 'bad'
    : percent >= 90 ? 'warn' : '');
  meter.setAttribute('aria-valuenow', percent.toFixed(1));
  meter.firstElementChild.style.width = `${Math.min(100, percent)}%`;
  setText($('tier-of'),
    known ? `${size(t.used)} on disk${t.ratio ? ` (1 : ${t.ratio.toFixed(2)})` : ''}, ` +
      `room for ${size(t.available)} in ${t.path}` : 'cannot be looked at');
  const words = [t.state];
  if (t.running)
    words.push(
    `${plural(t.running.objects, 'object', 'objects')} so far, ${size(t.running.freed)} freed`);
  else if (t.counters.objects) words.push(
    `${exact(t.counters.objects)} demoted by the daemon, ${size(t.counters.written)} written`);
  if (t.why) words.push(t.why);
  if (t.retry_seconds !== null) words.push(`tried again in ${duration(t.retry_seconds)}`);
  setText($('tier-state'), words.join(' · '));
  $('tier-state').dataset.state = t.state;
}

function showEquation(p) {
  const s = p.survey, body = $('equation').tBodies[0];
  if (!s) { setText($('survey'), 'No survey so far.'); body.replaceChildren(); return; }
  setText($('survey'),
    `Survey ${exact(s.sequence)}, ${duration(s.age_seconds)} ago, ` +
    `took ${duration(s.duration_seconds)}: ${count(s.stores)} stores, ` +
    `${count(s.objects)} objects, ${count(s.leases)} leases.` +
    (s.unreadable ? ` ${plural(s.unreadable, 'place', 'places')} could not be looked into.` : ''));
  const row = (sign, name, title, what, value, options = {}) =>
    make('tr', { class: options.class, 'data-term': name },
    make('th', { scope: 'row' }, make('span', { class: 'sign', 'aria-hidden': 'true' }, sign),
      options.swatch ? make('span', { class: `swatch c-${name}`, 'aria-hidden': 'true' }) : null,
      title, make('span', { class: 'what' }, what)),
    make('td', { class: 'number exact', 'data-bytes': value }, (value < 0 ? '−' : '') +
      exact(Math.abs(value))),
    make('td', { class: 'number' }, size(value)));
  body.replaceChildren(
    row('', 'used', 'used', 'what the file system says', s.used, { class: 'total' }),
    ...TERMS.map(([name, title, what], i) => row(i ? '+' : '=', name, title, what, s[name],
      { swatch: true })),
    row('+', 'residual', 'residual', s.residual ? 'what nothing explains' : 'the books close',
      s.residual, { class: s.residual ? 'off' : '', swatch: true }));
}

// Tables that sort: columns {name, title, number, value(row), cell(row)}.
function sortable(id, columns, render) {
  const sort = state.sort[id], head = $(id).tHead.rows[0];
  for (const c of columns) {
    const button = make('button', { type: 'button' }, c.title);
    button.addEventListener('click', () => {
      if (sort[0] === c.name) sort[1] = -sort[1];
      else { sort[0] = c.name; sort[1] = c.number ? -1 : 1; }
      render();
    });
    head.append(make('th', { scope: 'col', role: 'columnheader', class: c.number ? 'number' : '',
      'data-column': c.name }, button));
  }
}

function fillTable(id, columns, rows, empty) {
  const table = $(id), [by, order] = state.sort[id], column = columns.find((c) => c.name === by);
  for (const th of table.tHead.rows[0].cells)
    th.setAttribute('aria-sort', th.dataset.column !== by ? 'none' : order < 0 ? 'descending'
      : 'ascending');
  const value = (r) => {
    const v = column.value(r);
    return v === null || v === undefined ? -1 : v;
  };
  const sorted = [...rows].sort((a, b) => {
    const x = value(a), y = value(b);
    return order * (typeof x === 'number' && typeof y === 'number' ? x - y
      : String(x).localeCompare(String(y), undefined, { numeric: true }));
  });
  const shown = state.all[id] ? sorted : sorted.slice(0, ROWS);
  const trs = shown.map((r) => make('tr', { role: 'row', 'data-row': r.id }, ...columns.map((c) => {
    const td = c.cell(r);
    td.dataset.label = c.title;
    td.dataset.column = c.name;
    return td;
  })));
  if (!trs.length) trs.push(make('tr', { role: 'row', class: 'empty' },
    make('td', { role: 'cell', colspan: columns.length }, empty)));
  if (shown.length < sorted.length) {
    const button = make('button', { type: 'button' }, `Show all ${exact(sorted.length)}`);
    button.addEventListener('click', () => { state.all[id] = true;
      fillTable(id, columns, rows, empty); });
    trs.push(make('tr', { role: 'row', class: 'empty' },
      make('td', { role: 'cell', colspan: columns.length }, button)));
  }
  table.tBodies[0].replaceChildren(...trs);
}

const textCell = (text, kind = '') => make('td', { role: 'cell', class: kind }, text === '' ||
  text === null || text === undefined ? '–' : String(text));
const numberCell = (n) => make('td', { role: 'cell', class: 'number' }, n === null ||
  n === undefined ? '–' : exact(n));
const bytesColumn = (name, title, value = (r) => r[name]) => ({ name, title, number: true, value,
  cell: (r) => bytesCell(value(r), title) });

function stateTag(w) {
  if (w.alive === false && w.keep)
    return make('span',
    { class: 'tag', title: 'nobody has it open; it stays until somebody removes it' }, 'kept');
  if (w.alive === false) return make('span', { class: 'tag bad', title: 'its owner is gone' },
    'dead');
  if (w.alive === null) return make('span', { class: 'tag', title: 'we may not look' }, 'unknown');
  return w.registered ? make('span', { class: 'tag good', title: 'connected to the daemon' },
    'registered')
    : make('span', { class: 'tag', title: 'found by a scan; not connected to the daemon' },
      'found');
}
const WORKERS = [
  { name: 'name', title: 'Store', value: (w) => w.name,
    cell: (w) => { const td = textCell(w.name, 'name');
    td.title = w.path + (w.address ? ` · ${w.address}` : ''); return td; } },
  { name: 'pid', title: 'PID', number: true, value: (w) => w.pid, cell: (w) =>
    make('td', { role: 'cell', class: 'number' }, String(w.pid)) },
  { name: 'user', title: 'User', value: (w) => w.user, cell: (w) => textCell(w.user) },
  { name: 'label', title: 'Label', value: (w) => w.label, cell: (w) => textCell(w.label) },
  { name: 'objects', title: 'Objects', number: true, value: (w) => w.ledger.objects, cell: (w) =>
    numberCell(w.ledger.objects) },
  bytesColumn('linked', 'Linked'), bytesColumn('pss', 'PSS'), bytesColumn('uss', 'USS'),
  bytesColumn('pool', 'Pool'), bytesColumn('mapped', 'Mapped'),
  { name: 'credit', title: 'Credit', number: true, value: (w) => w.credit ? w.credit.outstanding
    : -1,
    cell: (w) => w.credit && !w.credit.unlimited ? bytesCell(w.credit.outstanding, 'Credit')
    : make('td', { role: 'cell', class: 'number', title: w.credit ? 'no limit applies'
    : 'none granted' }, w.credit ? '∞' : '–') },
  { name: 'state', title: 'State', value: (w) => w.alive === false ? 2 : w.registered ? 0 : 1,
    cell: (w) => make('td', { role: 'cell' }, stateTag(w)) },
];
const HOLDERS = [
  { name: 'pid', title: 'PID', number: true, value: (h) => h.pid, cell: (h) =>
    make('td', { role: 'cell', class: 'number' }, String(h.pid)) },
  { name: 'command', title: 'Command', value: (h) => h.command, cell: (h) => textCell(h.command,
    'name') },
  { name: 'user', title: 'User', value: (h) => h.user, cell: (h) => textCell(h.user) },
  bytesColumn('bytes', 'Holds'), bytesColumn('ghosts', 'Ghosts'),
  bytesColumn('inflight', 'In flight'), bytesColumn('mapped', 'Mapped'),
  { name: 'n', title: 'Files', number: true, value: (h) => h.n, cell: (h) => numberCell(h.n) },
  { name: 'age', title: 'Oldest', number: true, value: (h) => h.age, cell: (h) =>
    make('td', { role: 'cell', class: 'number', title: `${h.age.toFixed(3)} s` },
    duration(h.age)) },
  { name: 'key', title: 'Largest', value: (h) => h.key,
    cell: (h) => { const td = textCell(h.key, 'key'); td.title = h.path || ''; return td; } },
];
const ARB_TAGS = { RUNNING: 'good', BLOCKED: 'warn', ALLOC: 'warn', ALLOC_FREE: 'warn', BUFN: 'bad',
  BUFN_WAIT: 'bad' };
const ARBITER = [
  { name: 'store', title: 'Store', value: (c) => c.store,
    cell: (c) => { const td = textCell(c.store, 'name');
    td.title = `context ${c.context}, pid ${c.pid}`; return td; } },
  { name: 'task', title: 'Task', value: (c) => c.label || c.task, cell: (c) => textCell(c.label ||
    c.task, 'name') },
  { name: 'state', title: 'State', value: (c) => c.state, cell: (c) => make('td', { role: 'cell' },
    make('span', { class: `tag ${ARB_TAGS[c.state] || ''}`, title: c.reason || '' }, c.state)) },
  { name: 'since', title: 'Since', number: true, value: (c) => c.since_ms, cell: (c) =>
    make('td', { role: 'cell', class: 'number', title: `${exact(c.since_ms)} ms` },
    duration(c.since_ms / 1000)) },
  bytesColumn('bytes', 'Waits for'), bytesColumn('held', 'Held'), bytesColumn('need', 'Needed'),
  { name: 'passed', title: 'Passed', number: true, value: (c) => c.passed, cell: (c) =>
    numberCell(c.passed) },
];
const shown = { workers: [], holders: [], arbiter: [] };
const renderArbiter = () => fillTable('arbiter', ARBITER, shown.arbiter,
  'No task is known by name.');
sortable('arbiter', ARBITER, renderArbiter);
const renderWorkers = () => fillTable('workers', WORKERS, shown.workers, 'No store lives here.');
const renderHolders = () => fillTable('holders', HOLDERS, shown.holders,
  'Nobody: all memory has a name.');
sortable('workers', WORKERS, renderWorkers);
sortable('holders', HOLDERS, renderHolders);

// Hidden where the arbiter is off, or nobody ever asked it.
function showArbiter(sums, document) {
  $('arbiter-part').hidden = !sums || !document.enabled;
  if (!sums || !document.enabled) return;
  setText($('arbiter-count'), sums.parked ? `${exact(sums.parked)}` : '');
  setText($('arbiter-of'),
    `${size(sums.used)} of ${size(sums.capacity)} booked, ` +
    `${size(sums.reclaimable)} of it can be had back · ${plural(sums.tasks, 'task', 'tasks')}` +
    ` · ${exact(sums.retries)} rolled back, ${exact(sums.splits)} split, ` +
    `${exact(sums.timeouts)} in vain`);
  $('arbiter-of').title = `${exact(sums.used)} of ${exact(sums.capacity)} bytes`;
  const states = Object.entries(sums.states).filter(([, n]) => n).map(([name, n]) =>
    `${name} ${exact(n)}`);
  setText($('arbiter-states'), states.length ? states.join(' · ') : 'Nobody has a task here.');
  // over all pools; a context knows of the one that it waits for
  const held = new Map(document.tasks.map((t) => [t.id, t.held]));
  shown.arbiter = document.contexts.map((c) => ({ ...c, held: held.has(c.task) ? held.get(c.task)
    : c.held }));
  renderArbiter();
}

function showSums(id, list, name) {
  $(id).tBodies[0].replaceChildren(...list.map((u) => make('tr', { 'data-row': u[name] },
    make('th', { scope: 'row' }, String(u[name])), numberCell(u.stores),
    ...['linked', 'pss', 'uss', ...(id === 'users' ? ['ghosts'] : [])].map((n) => {
      const td = bytesCell(u[n], n); td.dataset.column = n; return td; }))));
}

function showWorkers(p) {
  shown.workers = p.workers.map((w) => ({ ...w, id: w.path }));
  const others = p.users.reduce((n, u) => n + u.stores, 0) - shown.workers.length;
  setText($('workers-count'),
    exact(shown.workers.length + p.left_out) +
    (state.view !== 'all' && others > 0 ? `, and ${exact(others)} of other users` : ''));
  renderWorkers();
  showSums('users', p.users, 'user');
  showSums('labels', p.labels, 'label');
  $('labels-part').hidden = !p.labels.length;
  state.users = new Map(p.users.map((u) => [u.uid, u.user]));
}

// One row for each process: what it holds, whoever else holds it too.
function showHolders(p) {
  const processes = new Map();
  for (const h of p.holders) {
    let one = processes.get(h.pid);
    if (!one) processes.set(h.pid, one = { id: h.pid, pid: h.pid, command: h.command,
      user: (state.users && state.users.get(h.uid)) || String(h.uid), bytes: 0, ghosts: 0,
      inflight: 0, mapped: 0, n: 0, age: 0, most: -1 });
    one.bytes += h.bytes;
    one[h.kind === 'ghost' ? 'ghosts' : 'inflight'] += h.bytes;
    one.mapped += h.mapped;
    one.n++;
    one.age = Math.max(one.age, h.age_seconds);
    if (h.bytes > one.most) { one.most = h.bytes; one.key = h.key || below(h.path);
      one.path = h.path; }
  }
  shown.holders = [...processes.values()];
  setText($('holders-count'), processes.size
    ? plural(processes.size, 'process', 'processes') +
      (p.left_out ? `; ${exact(p.left_out)} smaller holds are not listed` : '') : '');
  const n = shown.holders.filter((one) => one.ghosts).length;
  setText($('ghosts-of'), n ? `held by ${plural(n, 'process', 'processes')}` : p.ghosts
    ? 'held by others' : 'deleted, still in use');
  renderHolders();
}

function showQuota(p) {
  const rows = p.limits.filter((l) => l.id !== '*' || l.hard || l.soft).map((l) => {
    const full = l.hard || l.soft, part = (n) => `${full ? Math.min(100, n / full * 100) : 0}%`;
    const name = l.kind === 'partition' ? 'partition'
      : `${l.kind} ` + (l.kind === 'user' && state.users && state.users.has(+l.id)
        ? state.users.get(+l.id) : l.id === '*' ? '(default)' : l.id);
    const meter = make('div',
      { class: 'meter ' + (l.hard && l.used >= l.hard * .98 ? 'bad'
        : l.soft && l.used > l.soft ? 'warn' : ''), role: 'meter',
        'aria-label': `Used of the limit of ${name}`,
      'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': full ? (l.used / full * 100)
      .toFixed(1) : 0 }, make('span'), make('b'));
    meter.children[0].style.width = part(l.used);
    meter.children[1].style.left = part(l.used);
    meter.children[1].style.width =
      `${full ? Math.max(0, Math.min(100 - l.used / full * 100, l.outstanding / full * 100)) : 0}%`;
    if (l.soft && l.hard) { const mark = make('i', { title: 'soft limit' });
      mark.style.left = part(l.soft); meter.append(mark); }
    const figure = (title, n) => n === null ? null : make('span', { title: `${exact(n)} bytes`,
      'data-bytes': n, 'data-name': title }, `${title} ${size(n)}`);
    const join = (list) => list.filter(Boolean).flatMap((e, i) => i ? [' · ', e] : [e]);
    return make('div', { class: 'limit-row', 'data-row': `${l.kind}:${l.id}` },
      make('div', { class: 'limit-head' }, make('strong', {}, name),
        make('span', { class: 'quiet' },
        plural(l.stores, 'store', 'stores') + (l.waiting ? ` · ${exact(l.waiting)} wait` : '') +
        (l.refused ? ` · ${exact(l.refused)} refused` : ''))),
      full ? meter : null,
      make('p', { class: 'quiet' },
        ...join([figure('used', l.used), figure('granted', l.outstanding), figure('soft', l.soft),
        figure('hard', l.hard), full ? null : 'no limit'])));
  });
  $('quota').replaceChildren(...(rows.length ? rows
    : [make('p', { class: 'quiet' }, 'No limits are set.')]));
}

const EVENT_TAGS = { 'ghost-old': 'warn', watermark: 'warn', 'quota-refused': 'bad',
  residual: 'bad', 'client-dropped': 'warn', liar: 'bad', pressure: 'warn', 'disk-full': 'bad',
  'tier-damage': 'bad', 'store-came': 'good',
  'arbiter-retry': 'warn', 'arbiter-split': 'warn', 'arbiter-nomem': 'bad',
  'arbiter-timeout': 'bad', gate: 'warn', admission: 'warn', preempt: 'bad' };
const EVENT_WORDS = { 'daemon-started': 'the daemon started', 'store-came': 'a store came',
  'store-went': 'a store went', 'store-reaped': 'a dead store was removed',
  'ghost-old': 'deleted memory is still held', watermark: 'a soft limit was crossed',
  'quota-refused': 'a limit refuses more', 'lease-expired': 'a lease expired',
  residual: 'bytes are not explained', 'client-dropped': 'a client was dropped',
  'handoff-user': 'an object was handed to another user', 'limit-set': 'a limit was set',
  liar: "a store's totals do not add up", pressure: 'memory of the host is short',
  config: 'the configuration was read', demoted: 'objects went to disk',
  'disk-full': 'the disk tier is full', 'tier-damage': 'a tier file is damaged',
  'arbiter-retry': 'a task was rolled back', 'arbiter-split': 'a task was told to split',
  'arbiter-nomem': 'a task cannot have its memory', 'arbiter-timeout': 'a task waited in vain',
  memory: "the host's memory", gate: 'the gate closed or opened', admission: 'a task is held back',
  preempt: 'a process has to give way', stage: "a worker's stage" };
const SIZES = new RegExp('(^|_)(bytes|used|hard|soft|residual|freed|held|original|written|free|' +
  'max|total|kill|gate|high|low|u)$');

// The fields of an event that are worth a line; all of them are in its title.
function eventText(e) {
  const words = [];
  for (const [name, value] of Object.entries(e)) {
    if (['sequence', 'time', 'event', 'inode', 'address'].includes(name) || value === null ||
      value === '' || typeof value === 'object') continue;
    if (name === 'partition' && value === state.partition) continue;
    if ((name === 'name' || name === 'uid') && e.path) continue;
    if (name === 'path') words.push(below(value));
    else if (typeof value === 'number' && SIZES.test(name)) words.push(`${name} ${size(value)}`);
    else if (name === 'age_seconds') words.push(`age ${duration(value)}`);
    else words.push(`${name} ${value}`);
  }
  return words.join(' · ');
}

// Of the words of the filter every one must be in an event.
function wanted(e) {
  const text = `${e.event} ${EVENT_WORDS[e.event] || ''} ${JSON.stringify(e)}`.toLowerCase();
  return $('event-filter').value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function showEvents(list) {
  state.events = list.slice().reverse().concat(state.events).slice(0, EVENTS);
  const shown = state.events.filter(wanted);
  if (!shown.length) $('events').replaceChildren(make('li', { class: 'quiet' }, state.events.length
    ? 'None of that kind.' : 'Nothing so far.'));
  else $('events').replaceChildren(...shown.map((e) => make('li', { 'data-sequence': e.sequence,
    'data-event': e.event, title: JSON.stringify(e) },
    make('time', { datetime: new Date(e.time * 1000).toISOString() }, clock(e.time)),
    make('span', { class: `tag ${EVENT_TAGS[e.event] || ''}` }, EVENT_WORDS[e.event] || e.event),
    ' ', make('span', { class: 'fields' }, eventText(e)))));
}

// ---- asking -------------------------------------------------------------------------------------

async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(query ? `${path}?${query}` : path,
    { signal: AbortSignal.timeout(TIMEOUT), cache: 'no-store' });
  if (!answer.ok && answer.status !== 503) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

$('event-filter').addEventListener('input', () => showEvents([]));

function showLive(at) {
  document.body.className = state.reasons && state.reasons.length ? 'is-unwell' : 'is-live';
  setText($('live-text'), `live · ${clock(at)}`);
  $('away').hidden = true;
  const notes = [...(state.reasons || [])];
  if (state.view === 'own')
    notes.push('You see your own stores by name, and others’ only as sums.');
  if (state.view === 'totals')
    notes.push('You see sums only: the daemon cannot tell who you are, or is told to show no ' +
      'names (http.detail).');
  setText($('notice'), notes.join(' · '));
  $('notice').hidden = !notes.length;
}

// The last values stay, marked as past.
function showAway() {
  document.body.className = 'is-away';
  const since = state.reached || state.began;
  setText($('live-text'), 'not reachable');
  setText($('away'), state.reached
    ? `The daemon cannot be reached since ${clock(since)} ` +
      `(${duration(Date.now() / 1000 - since)}). ` +
      'The figures are those of then; trying again.'
    : `The daemon cannot be reached since this page was opened at ${clock(since)}; trying again.`);
  $('away').hidden = false;
}

async function refresh() {
  const status = await ask('api/v1/status');
  if (state.epoch !== null && state.epoch !== status.daemon.epoch) forget();
  state.epoch = status.daemon.epoch;
  state.view = status.daemon.view;
  showPartitions(status.partitions);
  const p = status.partitions.find((one) => one.partition === state.partition),
    of = { partition: state.partition };
  showDaemon(status.daemon, p);
  if (!p) return;
  const last = state.history && state.history.fine.time.length
    ? state.history.fine.time[state.history.fine.time.length - 1] : 0;
  const [workers, holders, quota, events, history, health, arbiter, gate, memory, actors,
    profiles] = await Promise.all([ask('api/v1/workers', of), ask('api/v1/holders', of),
    ask('api/v1/quota', of),
    ask('api/v1/events', { since: state.lastEvent }),
    ask('api/v1/history', { ...of, since: last.toFixed(3) }), ask('healthz'),
    ask('api/v1/arbiter', of), ask('api/v1/gate'), ask('api/v1/memory'), ask('api/v1/actors'),
    ask('api/v1/profiles')]);
  if (of.partition !== state.partition) return; // another one was chosen meanwhile
  state.reasons = health.reasons;
  showNow(p);
  showTier(p.tier);
  showArbiter(p.arbiter, arbiter.partitions[0]);
  showHost(gate.gate, memory.memory);
  showActors(actors.actors);
  showKinds(profiles.profiles);
  showEquation(p);
  showWorkers(workers.partitions[0]);
  showHolders(holders.partitions[0]);
  showQuota(quota.partitions[0]);
  showEvents(events.events);
  state.lastEvent = events.last;
  mergeHistory(history.partitions[0]);
  showHistory();
}

let timer = 0, running = false, again = false;
async function turn() {
  clearTimeout(timer);
  if (running) { again = true; return; }
  running = true;
  const began = performance.now();
  try {
    await refresh();
    state.reached = Date.now() / 1000;
    showLive(state.reached);
  } catch (error) {
    showAway();
    state.error = String(error);
  }
  running = false;
  timer = setTimeout(turn, again ? 0 : Math.max(50, (document.hidden ? INTERVAL_HIDDEN : INTERVAL) -
    (performance.now() - began)));
  again = false;
}
state.began = Date.now() / 1000;
document.addEventListener('visibilitychange', () => { if (!document.hidden) turn(); });
turn();
