// Values that the browser keeps. If its storage is disabled, they last until the page is left.

const here = {};

// `kind` is localStorage, or sessionStorage for this tab alone.
export function keep(kind, name, text) {
  here[name] = text;
  try {
    window[kind].setItem(name, text);
  } catch { /* the value stays in `here` */ }
}

export function kept(kind, name) {
  try {
    return here[name] ?? window[kind].getItem(name);
  } catch {
    return here[name] ?? null;
  }
}
