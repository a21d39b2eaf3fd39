// SPDX-License-Identifier: Apache-2.0
// Charts: drawn as SVG, with a readout below the pointer.

const SVG = 'http://www.w3.org/2000/svg';
function shape(tag, attributes, text) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// Steps of powers of two for bytes, of 1, 2, 5 for counts: labels are short and exact.
function stepFor(max, bytes) {
  const raw = Math.max(max, bytes ? 4096 : 1) / 4;
  if (bytes) return 2 ** Math.ceil(Math.log2(raw));
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((m) => m * power >= raw);
}

const TICKS = [10, 30, 60, 120, 300, 600, 1200];

class Chart {
  // options: bytes, stacked [{name, title}], lines [{name, title}], marks [{name, title}] (levels,
  // which data.marks has), legend, readout
  constructor(root, options) {
    Object.assign(this, options, { root, cursor: null, data: { time: [], span: 600 } });
    this.values = {};
    const explain = (list, kind) => {
      for (const s of list || []) {
        this.values[s.name] = make('span', { class: 'value' });
        options.legend.append(make('li', {}, make('span', { class: `swatch ${kind}${s.name}`,
          'aria-hidden': 'true' }), s.title, this.values[s.name]));
      }
    };
    explain(options.stacked, 'c-');
    explain(options.lines, 'line s-');
    explain(options.marks, 'line m-');
    root.addEventListener('pointermove', (e) => this.point(e.clientX));
    root.addEventListener('pointerdown', (e) => this.point(e.clientX));
    root.addEventListener('pointerleave', () => this.select(null));
    root.addEventListener('blur', () => this.select(null));
    root.addEventListener('keydown', (e) => {
      const last = this.data.time.length - 1;
      const at = this.cursor === null ? last : Math.max(0, this.indexOf(this.cursor));
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 30,
        PageDown: at + 30 }[e.key];
      if (e.key === 'Escape') this.select(null);
      if (to === undefined || last < 0) return;
      e.preventDefault();
      this.select(this.data.time[Math.min(last, Math.max(0, to))]);
    });
    new ResizeObserver(() => this.draw()).observe(root);
  }

  // The cursor is a time: it stays where it is while samples move on.
  indexOf(time) {
    const t = this.data.time;
    let low = 0, high = t.length - 1;
    while (low < high) { const mid = (low + high) >> 1; if (t[mid] < time) low = mid + 1;
      else high = mid; }
    return low > 0 && time - t[low - 1] < t[low] - time ? low - 1 : low;
  }

  point(clientX) {
    if (!this.box || !this.data.time.length) return;
    const x = (clientX - this.root.getBoundingClientRect().left - this.box.left) / this.box.width;
    this.select(this.data.time[this.indexOf(this.from + Math.min(1, Math.max(0, x)) * this.span)]);
  }

  select(time) { this.cursor = time; this.draw(); this.say(); }

  say() {
    const n = this.data.time.length;
    const at = this.cursor === null ? n - 1 : this.indexOf(this.cursor);
    for (const s of [...(this.stacked || []), ...this.lines]) {
      const v = at < 0 ? null : this.data[s.name][at];
      if (v === null || v === undefined) setText(this.values[s.name], '');
      else if (this.bytes) showBytes(this.values[s.name], v);
      else setText(this.values[s.name], rate(v));
    }
    for (const [name, v] of this.known()) showBytes(this.values[name], v);
    setText(this.readout, this.cursor === null || at < 0 ? '' : `${clock(this.data.time[at])} · ` +
      [...this.lines, ...(this.stacked || [])]
      .map((s) =>
        `${s.title} ${this.bytes ? exact(this.data[s.name][at]) : rate(this.data[s.name][at])}`)
        .join(' · ') + (this.bytes ? ' bytes' : ''));
  }

  // The levels that there are: [name, value].
  known() { return (this.marks || []).map((m) => [m.name, (this.data.marks || {})[m.name]])
    .filter(([, v]) => typeof v === 'number'); }

  show(data) { this.data = data; this.draw(); this.say(); }

  draw() {
    const width = this.root.clientWidth, height = this.root.clientHeight, d = this.data,
      n = d.time.length;
    if (!width || !height) return;
    const box = this.box = { left: this.bytes ? 62 : 40, top: 8, width: 0, height: height - 30 };
    box.width = Math.max(10, width - box.left - 10);
    const to = n ? d.time[n - 1] : Date.now() / 1000;
    // A young daemon's history fills the chart as well.
    const span = this.span = n ? Math.min(d.span, Math.max(60, to - d.time[0])) : d.span;
    this.from = to - span;
    let most = 0;
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (const s of this.stacked || []) sum += d[s.name][i];
      for (const s of this.lines) most = Math.max(most, d[s.name][i]);
      most = Math.max(most, sum);
    }
    for (const [, v] of this.known()) most = Math.max(most, v);
    const step = stepFor(most * 1.02, this.bytes),
      top = Math.max(1, Math.ceil(most * 1.02 / step)) * step;
    const x = (t) => box.left + (t - this.from) / span * box.width;
    const y = (v) => box.top + (1 - v / top) * box.height;
    const svg = shape('svg', { viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });

    for (let v = 0; v <= top; v += step) {
      svg.append(shape('line', { class: 'grid', x1: box.left, x2: box.left + box.width, y1: y(v),
        y2: y(v) }),
        shape('text', { x: box.left - 7, y: y(v) + 4, 'text-anchor': 'end' }, this.bytes ? size(v)
          : String(+v.toPrecision(6))));
    }
    const tick = TICKS.find((t) => span / t <= box.width / 75) || 1800;
    const zone = new Date(to * 1000).getTimezoneOffset() * 60;
    for (let t = Math.ceil((this.from - zone) / tick) * tick + zone; t <= to; t += tick)
      if (x(t) > box.left + 12 && x(t) < box.left + box.width - 8)
        svg.append(shape('text', { x: x(t), y: height - 6, 'text-anchor': 'middle' },
          clock(t, tick < 60)));
    const first = d.time.findIndex((t) => t >= this.from);
    if (n && first >= 0) {
      const path = (values) => { let p = ''; for (let i = first; i < n; i++) p +=
        `${i === first ? 'M' : 'L'}${x(d.time[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`; return p;
        };
      let below = new Array(n).fill(0);
      for (const s of this.stacked || []) {
        const above = below.map((b, i) => b + d[s.name][i]);
        let p = path(above);
        for (let i = n - 1; i >= first; i--)
          p += `L${x(d.time[i]).toFixed(1)} ${y(below[i]).toFixed(1)}`;
        svg.append(shape('path', { class: `area c-${s.name}`, d: `${p}Z` }));
        below = above;
      }
      if (this.limit && this.limit <= top)
        svg.append(shape('line', { class: 'limit', x1: box.left, x2: box.left + box.width,
        y1: y(this.limit), y2: y(this.limit) }));
      for (const [name, v] of this.known())
        svg.append(shape('line', { class: `mark m-${name}`, x1: box.left, x2: box.left + box.width,
        y1: y(v), y2: y(v) }));
      for (const s of this.lines)
        svg.append(shape('path', { class: `series s-${s.name}`, d: path(d[s.name]) }));
      if (this.cursor !== null && this.cursor >= this.from) {
        const cx = x(d.time[this.indexOf(this.cursor)]);
        svg.append(shape('line', { class: 'cursor', x1: cx, x2: cx, y1: box.top,
          y2: box.top + box.height }));
      }
    }
    this.root.replaceChildren(svg);
  }
}

const fillChart = new Chart($('fill-chart'), {
  bytes: true, stacked: TERMS.map(([name, title]) => ({ name, title })),
  lines: [{ name: 'used', title: 'used' }],
  legend: $('fill-legend'), readout: $('fill-readout'),
});
const rateChart = new Chart($('rate-chart'), {
  bytes: false, lines: [{ name: 'put', title: 'puts' }, { name: 'get', title: 'gets' },
    { name: 'adopt', title: 'adopts' }, { name: 'handoff', title: 'handoffs' }],
  legend: $('rate-legend'), readout: $('rate-readout'),
});
