// Own 16 x 16 icons. Every state has its own outline, so that shape alone tells it apart. Class f is filled, k is cut out.
import { html } from './html.mjs';

const P = (d, c) => html`<path d=${d} class=${c} />`;
const disc = 'M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z', oct = 'M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z', ring = 'M8 1.75a6.25 6.25 0 1 0 0 12.5 6.25 6.25 0 0 0 0-12.5z';
const I = {
  running: () => [P(disc, 'f'), P('M6.6 5.2 10.8 8l-4.2 2.8z', 'k')],
  dispatching: () => [P(ring), P('M5 8h5.5M8.3 5.6 10.7 8l-2.4 2.4')],
  cancelling: () => [P(ring), P('M6 6h4v4H6z', 'f')],
  lost: () => [P('M8 1 15 8 8 15 1 8z', 'f'), P('M6.5 6.6c.2-2 3-1.9 3 0 0 1.2-1.5 1.2-1.5 2.3M8 11.2v.1', 'k')],
  succeeded: () => [P(disc, 'f'), P('M5 8.2 7.2 10.4 11 6', 'k')],
  failed: () => [P(oct, 'f'), P('M5.7 5.7l4.6 4.6M10.3 5.7l-4.6 4.6', 'k')],
  cancelled: () => [P(ring), P('M3.8 12.2 12.2 3.8')],
  imported: () => [P('M8 2v7M5 6.5 8 9.5l3-3M2.5 13h11')],
  critical: () => [P(oct, 'f'), P('M8 4.5v4M8 11.2v.1', 'k')],
  warning: () => [P('M8 1.5 15.2 14.5H.8z', 'f'), P('M8 6.2v3.3M8 12v.1', 'k')],
  info: () => [P(ring), P('M8 7.5v3.5M8 5v.1')],
  ckpt: () => [P('M8 2 14 8 8 14 2 8z')],
  runs: () => P('M2 12c3 0 3-8 6-8s3 5 6 5M2 14.3h12'),
  copy: () => P('M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1'),
  down: () => P('M8 3v9M4.5 8.8 8 12.3l3.5-3.5'),
  sun: () => [P('M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6z'), P('M8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M3.2 12.8l.9-.9M11.9 4.1l.9-.9')],
  moon: () => P('M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z'),
  auto: () => [P(ring), P('M8 1.75a6.25 6.25 0 0 1 0 12.5z', 'f')],
  reset: () => P('M2.5 2.5v4h4M3 6.3A5.5 5.5 0 1 1 2.6 9'),
  logo: () => [P('M1.5 10.5 8 13.5l6.5-3M1.5 7.5 8 10.5l6.5-3'), P('M8 1.5 14.5 4.6 8 7.7 1.5 4.6z', 'f')],
  out: () => [P('M6.5 2.5h-4v11h4M6 8h8M11 5l3 3-3 3')],
};
export const Icon = ({ n, label }) => html`<svg class="i" viewBox="0 0 16 16" role=${label ? 'img' : null} aria-label=${label} aria-hidden=${label ? null : 'true'}>${I[n]()}</svg>`;
