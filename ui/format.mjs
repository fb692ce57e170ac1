// Numbers, sizes and times as text. Pure.
import { T } from './text.mjs';

export const count = v => v == null ? '-' : v.toLocaleString('en-US');

// a value of a series: a number, null for NaN, or Infinity
export const value = v => v == null || Number.isNaN(v) ? 'NaN' : !Number.isFinite(v) ? String(v) : v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(3) : Math.abs(v) >= 1e6 ? v.toExponential(4) : Math.abs(v) >= 1000 ? count(Math.round(v)) : String(+v.toPrecision(4));
export const tick = v => v == null ? '' : v !== 0 && Math.abs(v) < 1e-3 ? (+v.toPrecision(3)).toExponential() : Math.abs(v) >= 1e6 ? (+v.toPrecision(3)).toExponential() : Math.abs(v) >= 1000 ? +(v / 1000).toPrecision(4) + 'k' : String(+v.toPrecision(6));

// JSON has no NaN: the API writes "NaN", "Infinity", "-Infinity"
export const number = v => typeof v === 'number' ? v : v == null ? null : v === 'NaN' ? NaN : Number(v);

export const length = ms => {
  const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  return s < 60 ? `${s} s` : m < 60 ? `${m} min` + (m < 10 ? ` ${s % 60} s` : '') : h < 48 ? `${h} h ${m % 60} min` : `${d} d ${h % 24} h`;
};
export const ago = ms => ms < 1500 ? T.now : T.ago(length(ms));
export const clock = ms => new Date(ms).toLocaleTimeString('en-GB');
export const exact = ms => new Date(ms).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
export const size = b => { let u = 0; while (b >= 1024 && u < 5) { b /= 1024; u++; } return (u && b < 10 ? b.toFixed(1) : Math.round(b)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][u]; };
