// The log: the last lines, following. Rows are made by hand, not by the renderer: two thousand of them stay as they are while everything
// else is drawn anew each second. Text nodes and classes only.
import { Component } from './vendor/preact.mjs';
import { html, Icon, T } from './kit.mjs';
import { exact } from './format.mjs';
import { choose, q } from './place.mjs';

export const LINES = 2000; // what the server keeps of a run, and what is drawn at most while following
const HELD = 3 * LINES; // while somebody reads further up nothing is taken away below this

// parts of a line: SGR colours become classes, every other escape and control character is left out
export const ansi = text => {
  const out = [];
  let cls = [];
  for (const part of text.split(/(\x1b\[[\d;]*m)/)) {
    const m = /^\x1b\[([\d;]*)m$/.exec(part);
    if (!m) {
      const plain = part.replace(/\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]/g, '');
      if (plain) out.push([cls.join(' '), plain]);
      continue;
    }
    for (const c of (m[1] || '0').split(';')) {
      if (c === '' || c === '0') cls = [];
      else if (c === '1' || c === '2') cls = [...cls, 'a' + c];
      else if (/^(3[0-7]|9[0-7])$/.test(c)) cls = [...cls.filter(x => x.length < 3), c === '90' ? 'a90' : 'a3' + c[1]];
      else if (c === '39') cls = cls.filter(x => x.length < 3);
    }
  }
  return out;
};
const write = (e, text) => e.replaceChildren(...ansi(text).map(([cls, t]) => { if (!cls) return t; const s = document.createElement('span'); s.className = cls; s.textContent = t; return s; }));

const row = l => {
  const e = document.createElement('div'), n = document.createElement('i'), t = document.createElement('span');
  e.className = 'll'; e.dataset.n = l.n; n.textContent = l.n;
  if (l.at_ms != null) e.title = exact(l.at_ms);
  write(t, l.text);
  e.append(n, t);
  return e;
};
const gap = n => { const e = document.createElement('div'); e.className = 'll gapline'; e.append(document.createElement('i'), T.log.gap(n)); return e; };

// LogFeed holds the lines of one run and tells whoever shows them.
export class LogFeed {
  constructor() { this.lines = []; this.live = null; this.done = false; this.show = null; }
  add(items, live, done) {
    for (const l of items) this.lines.push(l);
    if (this.lines.length > LINES) this.lines.splice(0, this.lines.length - LINES);
    this.live = live; this.done = done;
    this.show?.(items);
  }
}

export class LogView extends Component {
  componentDidMount() {
    this.at = true; this.fresh = 0; this.last = null;
    this.append(this.props.feed.lines);
    this.bottom();
    this.props.feed.show = items => this.arrive(items);
    this.keys = e => { if (e.key === 'f' && !e.metaKey && !e.ctrlKey && !e.altKey && !(e.target instanceof HTMLInputElement)) this.follow(); };
    addEventListener('keydown', this.keys);
    this.sized = new ResizeObserver(() => { if (this.at) this.bottom(); });
    this.sized.observe(this.body);
  }

  componentWillUnmount() { this.props.feed.show = null; removeEventListener('keydown', this.keys); this.sized.disconnect(); }

  append(items) {
    const f = document.createDocumentFragment();
    for (const l of items) {
      if (this.last != null && l.n > this.last + 1) f.append(gap(l.n - this.last - 1));
      else if (this.last == null && l.n > 1) f.append(gap(l.n - 1));
      f.append(row(l));
      this.last = l.n;
    }
    this.body.append(f);
  }

  arrive(items) {
    this.append(items);
    const most = this.at ? LINES : HELD, extra = this.body.childElementCount - most;
    for (let i = 0; i < extra; i++) this.body.firstElementChild.remove();
    if (this.at) this.bottom(); else this.fresh += items.length;
    this.setState({});
  }

  bottom() { this.body.scrollTop = this.body.scrollHeight; }
  follow() { this.at = true; this.fresh = 0; this.bottom(); this.setState({}); }
  scrolled() {
    if (!this.body) return; // a scroll is told late: the log may be gone
    const at = this.body.scrollHeight - this.body.scrollTop - this.body.clientHeight < 24;
    if (at === this.at) return;
    this.at = at;
    if (at) this.fresh = 0;
    this.setState({});
  }

  render({ feed, run }) {
    const wrap = q('wrap', '1') === '1';
    return html`<div class="log"><div class="logbar"><span class="sub grow">${T.log.all} <code>${T.log.full(run.id)}</code> <span class="faint">${T.log.counted(Math.max(run.log.lines, this.last ?? 0))}</span></span>
        <button class="btn" aria-pressed=${String(!!this.at)} onClick=${() => this.follow()}>${T.log.follow}</button>
        <button class="btn" aria-pressed=${String(wrap)} onClick=${() => choose({ wrap: wrap ? '0' : null })}>${T.log.wrap}</button></div>
      <div class=${'logbody' + (wrap ? '' : ' nowrap')} tabindex="0" role="log" aria-live="off" aria-label=${T.log.title} onScroll=${() => this.scrolled()} ref=${e => { this.body = e; }}></div>
      ${!feed.lines.length && html`<p class="logempty sub">${feed.done ? T.log.over : T.log.none}</p>`}
      ${!this.at && html`<button class="btn pri pill" onClick=${() => this.follow()}><${Icon} n="down" />${T.log.fresh(this.fresh)}</button>`}
      ${feed.live && html`<div class="livebar"><span class="c-run pulse"><${Icon} n="running" label=${T.log.last} /></span><span class="grow">${ansi(feed.live).map(([cls, t]) => html`<span class=${cls || null}>${t}</span>`)}</span></div>`}</div>`;
  }
}
