// One curve: caption, one readout line (instead of a floating box that hides the data), plot. A canvas cannot read light-dark() variables, so
// colours are taken from real, hidden elements.
import { Component } from './vendor/preact.mjs';
import { html, Icon, T } from './kit.mjs';
import { count, value, tick } from './format.mjs';

const uPlot = globalThis.uPlot; // vendor/uPlot.iife.min.js, a deferred classic script
const ink = cls => { const p = document.createElement('i'); p.className = 'probe ' + cls; document.body.append(p); const c = getComputedStyle(p).color; p.remove(); return c; };
const thin = colour => colour.replace('rgb(', 'rgba(').replace(')', ', 0.18)');
const DOTS = 40; // up to so many points each is drawn as a dot too: a lone one has no line
const KINDS = { NaN: 'NaN', Infinity: 'Inf', '-Infinity': '-Inf' };

export class Chart extends Component {
  componentDidMount() {
    const again = () => { if (this.u) { this.u.destroy(); this.draw(); } };
    this.themed = new MutationObserver(again);
    this.themed.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.dark.addEventListener('change', this.again = again);
    this.sized = new ResizeObserver(() => { if (this.u && this.el.clientWidth) this.u.setSize(this.size()); });
    this.sized.observe(this.el);
    // a hundred metrics are a hundred canvases: each is made when it comes near
    this.near = new IntersectionObserver(es => { if (es.some(e => e.isIntersecting) && !this.u) { this.near.disconnect(); this.draw(); } }, { rootMargin: '400px' });
    this.near.observe(this.el);
    this.rest();
  }

  componentDidUpdate(prev) {
    const c = this.props.curve;
    if (prev.curve === c && prev.view === this.props.view) return;
    if (this.u && !prev.curve.lo !== !c.lo) { this.u.destroy(); this.draw(); return; }
    if (this.u) {
      this.u.setData(this.data(), !this.zoomed);
      if (this.zoomed) this.u.redraw();
    }
    if (!this.reading) this.rest();
  }

  componentWillUnmount() { this.themed.disconnect(); this.sized.disconnect(); this.near.disconnect(); this.dark.removeEventListener('change', this.again); this.u?.destroy(); }
  size() { return { width: this.el.clientWidth, height: this.el.clientHeight }; }
  data() { const c = this.props.curve; return c.lo ? [c.x, c.y, c.lo, c.hi] : [c.x, c.y]; }

  // say writes the readout: [label, text, exact value]
  say(parts) {
    this.out.replaceChildren(...parts.map(([label, text, exact]) => {
      const s = document.createElement('span');
      if (text == null) { s.textContent = label; return s; }
      const b = document.createElement(exact == null ? 'b' : 'data');
      b.textContent = text;
      if (exact != null) { b.value = String(exact); b.className = 'of-' + label; }
      s.append(label + ' ', b);
      return s;
    }));
  }

  rest() {
    const { curve, view } = this.props, last = curve.last;
    if (!last) { this.say([]); return; }
    const best = view?.best, parts = [[T.charts.step, count(last.step), last.step], [T.charts.last, value(last.value), last.value]];
    if (best) parts.push([T.charts.best, value(best.value), best.value], [T.charts.at, count(best.step)]);
    else if (view?.min && view?.max) parts.push([T.charts.min, value(view.min.value)], [T.charts.max, value(view.max.value)]);
    this.say(parts);
  }

  draw() {
    const { curve, sync } = this.props, fg = ink('sub'), rule = ink('ln'), bad = ink('c-bad'), main = ink('s1'), family = getComputedStyle(document.body).fontFamily, font = '11px ' + family;
    const hidden = { stroke: 'transparent', width: 0, points: { show: false } };
    const axis = { stroke: fg, font, grid: { stroke: rule, width: 1 }, ticks: { show: false }, gap: 6 };
    this.zoomed = false;
    this.u = new uPlot({
      ...this.size(), padding: [10, 12, 0, 0], legend: { show: false }, scales: { x: { time: false } },
      series: [{}, { stroke: main, width: 1.75, points: { show: (u, si, i0, i1) => i1 - i0 <= DOTS, size: 5, fill: main, stroke: main } }, ...(curve.lo ? [hidden, hidden] : [])],
      bands: curve.lo ? [{ series: [3, 2], fill: thin(main) }] : [],
      cursor: { sync: { key: sync }, drag: { x: true, y: false }, points: { size: 7 } },
      axes: [{ ...axis, size: 28, values: (u, v) => v.map(tick) }, { ...axis, size: 50, values: (u, v) => v.map(tick) }],
      hooks: {
        setSelect: [u => { if (u.select.width > 0) this.zoomed = true; }],
        draw: [u => { this.crosses(u, bad, family); this.tell(u); }],
        setCursor: [u => this.read(u)],
      },
    }, this.data(), this.el);
    this.u.over.addEventListener('dblclick', () => { this.zoomed = false; });
    this.u.root.querySelector('canvas').setAttribute('aria-hidden', 'true');
  }

  read(u) {
    const i = u.cursor.idx, c = this.props.curve;
    this.reading = i != null && u.cursor.left >= 0;
    if (!this.reading) { this.rest(); return; }
    const parts = [[T.charts.step, count(c.x[i])], [c.lo ? T.charts.mean : T.charts.value, c.odd[i] || value(c.y[i])]];
    if (c.lo && c.lo[i] != null) parts.push([T.charts.min, value(c.lo[i])], [T.charts.max, value(c.hi[i])]);
    this.say(parts);
  }

  // tell leaves what was drawn last where a test finds it
  tell(u) {
    const i = u.data[0].length - 1;
    if (i >= 0) Object.assign(this.el.dataset, { points: i + 1, step: u.data[0][i], drawn: u.data[1][i] ?? this.props.curve.odd[i] });
  }

  // what is not finite: a cross on the axis where a point should be, and a word at the first one
  crosses(u, bad, family) {
    const { x, odd } = this.props.curve, g = u.ctx, r = devicePixelRatio, { left, top, width, height } = u.bbox;
    let before = -Infinity, said = false;
    g.save();
    g.strokeStyle = g.fillStyle = bad;
    g.lineWidth = 1.5 * r;
    odd.forEach((kind, i) => {
      if (!kind) return;
      const X = u.valToPos(x[i], 'x', true), Y = top + height - 6 * r, k = 3.2 * r;
      if (X < left || X > left + width || X - before < 7 * r) return;
      before = X;
      g.beginPath(); g.moveTo(X - k, Y - k); g.lineTo(X + k, Y + k); g.moveTo(X + k, Y - k); g.lineTo(X - k, Y + k); g.stroke();
      if (said) return;
      said = true;
      g.font = `600 ${11 * r}px ${family}`;
      g.textAlign = X - left > 40 * r ? 'right' : 'left';
      g.fillText(KINDS[kind], X + (g.textAlign === 'right' ? -7 : 7) * r, Y + 4 * r);
    });
    g.restore();
  }

  render({ name, note, curve, level = 3 }) {
    const reset = () => { this.zoomed = false; this.u?.setData(this.data()); };
    return html`<figure class="chart" aria-label=${name}><figcaption><${'h' + level} class="grow">${name} ${note && html`<span class="count">${note}</span>`}<//>
      <button class="btn ghost icon" aria-label=${T.charts.zoom(name)} title=${T.charts.zoom(name)} onClick=${reset}><${Icon} n="reset" /></button></figcaption>
      <p class="vh">${curve.last && T.charts.sum(name, count(curve.last.step), value(curve.last.value))}</p>
      <div class="read" ref=${e => { this.out = e; }}></div><div class="plot" ref=${e => { this.el = e; }}></div></figure>`;
  }
}
