// SPDX-License-Identifier: Apache-2.0
// The host's memory, where the daemon watches it: its thresholds, who waits at the gate, who was
// preempted. The chart begins when the page is opened: the daemon keeps no history of the host.

const HOST = [['private', 'processes'], ['store', 'partitions'], ['other', 'all else']];
const MARKS = [['kill', 'preempts above'], ['gate', 'gate closes'], ['low', 'gate opens']];
const hostChart = new Chart($('host-chart'), {
  bytes: true, stacked: HOST.map(([name, title]) => ({ name, title })),
  lines: [{ name: 'used', title: 'used' }],
  marks: MARKS.map(([name, title]) => ({ name, title })), legend: $('host-legend'),
  readout: $('host-readout'),
});
const STEPS = { notice: ['asked to stop', 'warn'], term: ['sent SIGTERM', 'bad'],
  kill: ['sent SIGKILL', 'bad'], gone: ['ended', 'bad'], yielded: ['ended its tasks', 'good'],
  spared: ['goes on', ''] };
const PREEMPTED = [
  ['When', (r) => { const td = textCell(clock(r.time), 'name');
    td.title = new Date(r.time * 1000).toISOString(); return td; }],
  ['Step', (r) => make('td', { role: 'cell' },
    make('span', { class: `tag ${(STEPS[r.step] || ['', ''])[1]}` },
    (STEPS[r.step] || [r.step])[0]))],
  ['PID', (r) => make('td', { role: 'cell', class: 'number' }, String(r.pid))],
  ['User', (r) => textCell((state.users && state.users.get(r.uid)) || r.uid)],
  ['Tasks', (r) => numberCell(r.tasks)],
  ['Why', (r) => textCell(r.why)],
  ['Frees', (r) => bytesCell(r.bytes, 'Frees')],
  ['Try again', (r) => textCell(r.retry ? `after ${duration(r.delay_ms / 1000)}` : 'no')],
];

// An unknown value is no sample.
function addSample(m) {
  const s = state.host || (state.host = { time: [], private: [], store: [], other: [], used: [] });
  if (m.used === null || s.time[s.time.length - 1] === m.sampled) return;
  s.time.push(m.sampled);
  for (const name of ['private', 'store', 'other', 'used'])
    s[name].push(m[name] === null ? 0 : m[name]);
  for (const values of Object.values(s)) if (values.length > 600) values.shift();
}

function showPreempted(preemption) {
  const rows = preemption ? preemption.recent : [], table = $('preempted');
  table.parentElement.hidden = $('h-preempted').hidden = !rows.length;
  table.tBodies[0].replaceChildren(...rows.map((r) =>
    make('tr', { role: 'row', 'data-row': r.number }, ...PREEMPTED.map(([title, cell]) => {
    const td = cell(r);
    td.dataset.label = title;
    return td;
  }))));
}
$('preempted').tHead.rows[0].append(...PREEMPTED.map(([title]) =>
  make('th', { scope: 'col', role: 'columnheader', class: ['PID', 'Tasks', 'Frees'].includes(title)
  ? 'number' : '' }, title)));

// Hidden where nobody watches the host's memory.
function showHost(gate, memory) {
  $('host-part').hidden = !gate.enabled || !memory.enabled;
  if ($('host-part').hidden) return;
  addSample(memory);
  hostChart.show({ span: 600, ...state.host, marks: { kill: memory.kill, gate: memory.gate,
    low: memory.low } });
  $('gate').className =
    `tag ${gate.state === 'closed' ? 'bad' : gate.state === 'open' ? 'good' : 'warn'}`;
  setText($('gate'), `gate ${gate.state}`);
  $('gate').title =
    `for ${duration(gate.since_seconds)}; it closed or opened ` +
    plural(gate.flips, 'time', 'times');
  setText($('host-of'),
    (memory.used === null ? 'What is used is not known'
      : `${size(memory.used)} of ` +
        (memory.total === null ? 'an unknown total' : size(memory.total)) + ' used') +
    `, says ${memory.source}` +
    ` · ${plural(memory.above_kill, 'time', 'times')} above what preempts` +
    (memory.above_kill ? `, ${duration(memory.above_kill_seconds)} in all` : ''));
  const line = gate.waiting === undefined ? []
    : [`${plural(gate.running, 'task runs', 'tasks run')}`,
    gate.waiting
    ? `${plural(gate.waiting, 'waits', 'wait')}, the oldest for ` +
        duration(gate.oldest_wait_seconds)
      : 'none waits',
    `${size(gate.reserved)} of ${size(gate.cap)} expected of those that run`,
    `${exact(gate.admitted)} let in, ${exact(gate.refused)} refused, ` +
        `${exact(gate.timed_out)} waited in vain`];
  setText($('gate-line'), line.join(' · '));
  $('gate-line').dataset.waiting = gate.waiting;
  showPreempted(gate.preemption);
}
