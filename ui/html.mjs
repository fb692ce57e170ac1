// Markup as tagged templates. Whatever is put into one becomes a text node or an attribute, never markup.
import { h } from './vendor/preact.mjs';
import htm from './vendor/htm.mjs';
export const html = htm.bind(h);
