// SPDX-License-Identifier: Apache-2.0
// Actors and kinds of tasks: where each actor is and what waits for it; of each kind what its tasks
// used, over their lives and as a distribution.

const KINDS = 50; // rows: those with most tasks

// Bars from 0 to the largest value, as wide as there is room. A text says what they show.
function bars(values, text) {
  const svg = document.createElementNS(SVG, 'svg'), most = Math.max(1, ...values),
    step = 100 / Math.max(1, values.length);
  svg.setAttribute('class', 'bars');
  svg.setAttribute('viewBox', '0 0 100 24');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', text);
  values.forEach((value, i) => {
    const bar = document.createElementNS(SVG, 'rect'), height = value
      ? Math.max(1, 24 * value / most) : 0;
    for (const [name, v] of Object.entries({ x: i * step + step * 0.08, y: 24 - height,
      width: step * 0.84, height })) bar.setAttribute(name, v.toFixed(3));
    bar.dataset.value = value;
    svg.append(bar);
  });
  return svg;
}

function barsCell(values, text) {
  const td = make('td', { role: 'cell', title: text });
  if (values.length) td.append(bars(values, text));
  else td.textContent = '–';
  return td;
}

function nameOf(k) { return `${k.func}${k.group ? ` (${k.group})` : ''}`; }

// Steps between the first and the last that are not empty, without gaps: a
// power of two has four steps.
function steps(histogram) {
  const from = Math.log2(Math.max(1, histogram.length ? histogram[0][0] : 1)), all = [];
  for (const [begins, n] of histogram)
    all[Math.round((Math.log2(Math.max(1, begins)) - from) * 4)] = n;
  return Array.from(all, (n) => n || 0);
}

function phasesText(k) {
  return k.phases.length
    ? `private memory over a life of ${duration(k.life_ms / 1000)}: ` +
      k.phases.map(size).join(', ') : 'not known';
}

function histogramText(h) {
  return h.length ? h.map(([from, n]) => `${plural(n, 'task', 'tasks')} from ${size(from)}`)
    .join(', ') : 'not known';
}

const KIND = [
  ['Kind', (k) => { const td = textCell(nameOf(k), 'name'); td.title = k.lang; return td; }],
  ['Tasks', (k) => numberCell(k.private.n)],
  ['Average', (k) => bytesCell(k.private.average, 'Average')],
  ['95 %', (k) => bytesCell(k.private.p95, '95 %')],
  ['Peak', (k) => bytesCell(k.private.peak, 'Peak')],
  ['Next', (k) => bytesCell(k.private.estimate, 'Next')],
  ['Over its life', (k) => barsCell(k.phases, phasesText(k))],
  ['Distribution', (k) => barsCell(steps(k.private.histogram), histogramText(k.private.histogram))],
];
const ACTOR_STATES = { active: 'good', elsewhere: '', copy: '', recovering: 'bad', ended: 'bad' };
const ACTOR = [
  ['Actor', (a) => { const td = textCell(a.name, 'name');
    if (a.parent) td.title = `child of ${a.parent}`; return td; }],
  ['User', (a) => textCell((state.users && state.users.get(a.uid)) || a.uid)],
  ['State', (a) => make('td', { role: 'cell' },
    make('span', { class: `tag ${a.state in ACTOR_STATES ? ACTOR_STATES[a.state] : 'warn'}` },
    a.state === 'copy' ? 'a copy only' : a.state))],
  ['Where', (a) => textCell(a.daemon ? `at daemon ${a.daemon}` : a.place
    ? `${a.place}, process ${a.pid}` : 'nowhere')],
  ['Waiting', (a) => numberCell(a.queued)],
  ['Running', (a) => numberCell(a.running)],
  ['Copies', (a) => textCell(a.copies.map((c) => c.daemon).join(', ') ||
    (a.bytes ? 'here' : 'none'))],
];

function fill(table, columns, rows, key) {
  table.tBodies[0].replaceChildren(...rows.map((r) =>
    make('tr', { role: 'row', 'data-row': key(r) }, ...columns.map(([title, cell]) => {
    const td = cell(r);
    td.dataset.label = title;
    return td;
  }))));
}

function showActors(actors) {
  if (!actors.actors) return; // shmstored has none, and the part stays hidden
  const peers = actors.peers.map((p) => p.name);
  $('actors-part').hidden = !actors.places && !actors.actors.length && !peers.length;
  setText($('actors-line'), [plural(actors.places, 'process takes actors', 'processes take actors'),
    `${exact(actors.answered)} calls answered, ${exact(actors.lost)} lost`,
    `${plural(actors.moves, 'move', 'moves')}, ${exact(actors.failed)} failed`, actors.daemon
    ? `this daemon is ${actors.daemon}, ` +
      (peers.length ? `connected to ${peers.join(', ')}` : 'and alone') : null,
    actors.left_out ? `${exact(actors.left_out)} more are not shown` : null].filter(Boolean)
    .join(' · '));
  fill($('actors'), ACTOR, actors.actors, (a) => `${a.uid} ${a.name}`);
}

function showKinds(profiles) {
  const kinds = profiles.enabled ? profiles.known.users.flatMap((u) =>
    u.kinds.map((k) => ({ ...k, uid: u.uid }))) : [];
  kinds.sort((a, b) => b.private.n - a.private.n);
  $('kinds-part').hidden = !kinds.length;
  if (!kinds.length) return;
  setText($('kinds-line'),
    'The next task of a kind is expected to take what its strategy says ' +
    `(${profiles.known.strategy})` +
    (kinds.length > KINDS ? `; ${exact(kinds.length - KINDS)} more kinds are not shown` : ''));
  fill($('kinds'), KIND, kinds.slice(0, KINDS), (k) => `${k.uid} ${k.lang} ${nameOf(k)}`);
}

for (const [id, columns, numbers] of [['actors', ACTOR, ['Waiting', 'Running']],
  ['kinds', KIND, ['Tasks', 'Average', '95 %', 'Peak', 'Next']]])
  $(id).tHead.rows[0].append(...columns.map(([title]) =>
    make('th', { scope: 'col', role: 'columnheader', class: numbers.includes(title) ? 'number'
    : '' }, title)));
