// SPDX-License-Identifier: Apache-2.0
// Text, sizes, durations, and the theme. First of the scripts that embed.cmake joins.
const $ = (id) => document.getElementById(id);
const INTERVAL = 1000, INTERVAL_HIDDEN = 10000, TIMEOUT = 5000, ROWS = 100, EVENTS = 60;
const TERMS = [
  ['linked', 'linked', 'named objects, each inode once, and the stores’ own pages'],
  ['pool', 'pool', 'recycled files kept for the next put'],
  ['inflight', 'in flight', 'written, not yet published'],
  ['ghosts', 'ghosts', 'deleted, still mapped or open'],
  ['foreign', 'foreign', 'files that are not ours'],
];

// ---- text ---------------------------------------------------------------------------------------

function make(tag, options = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === 'class') e.className = value;
    else if (value !== undefined && value !== null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

function exact(n) { return String(Math.trunc(n)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f'); }

function size(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0, value = Math.abs(n);
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  const digits = unit === 0 || Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${n < 0 ? '−' : ''}${value.toFixed(digits)}\u00a0${units[unit]}`;
}

function count(n) { return n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : exact(n); }

function plural(n, one, many) { return `${exact(n)} ${n === 1 ? one : many}`; }

function rate(n) { return n >= 100 ? exact(Math.round(n)) : n >= 10 ? n.toFixed(1) : n === 0 ? '0'
  : n.toFixed(2); }

function duration(s) {
  if (s < 1) return `${Math.max(0, Math.round(s * 1000))} ms`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

function clock(seconds, withSeconds = true) {
  const d = new Date(seconds * 1000), two = (n) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}` +
    (withSeconds ? `:${two(d.getSeconds())}` : '');
}

function setText(e, text) { if (e.textContent !== text) e.textContent = text; }

// A size with its exact bytes.
function showBytes(e, n, suffix = '') {
  setText(e, size(n) + suffix);
  e.title = `${exact(n)} bytes`;
  e.dataset.bytes = n;
}

function bytesCell(n, label) {
  const td = make('td', { class: 'number', 'data-label': label, role: 'cell' });
  if (n === null || n === undefined) { td.textContent = '–';
    td.title = 'came after the last survey'; td.dataset.sort = -1; return td; }
  const e = make('span');
  showBytes(e, n);
  td.append(e);
  return td;
}

// ---- theme --------------------------------------------------------------------------------------

const dark = matchMedia('(prefers-color-scheme: dark)');
function applyTheme() {
  const choice = $('theme').value;
  document.documentElement.dataset.theme = choice === 'auto' ? (dark.matches ? 'dark' : 'light')
    : choice;
}
try { $('theme').value = localStorage.getItem('shmstore-theme') || 'auto';
  } catch { /* no storage: auto */ }
$('theme').addEventListener('change', () => {
  try { localStorage.setItem('shmstore-theme', $('theme').value); } catch { /* as above */ }
  applyTheme();
});
dark.addEventListener('change', applyTheme);
applyTheme();
