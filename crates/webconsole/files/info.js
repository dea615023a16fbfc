// Parses INFO and CLIENT LIST, which are texts of names and values.

/* INFO as an object. */
export function info(text) {
  const lines = text.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf(':');
    return [line.slice(0, at), line.slice(at + 1)];
  }));
}

/* `name=value,name=value` as an object. */
export const pairs = (text, between = ',') => Object.fromEntries(text.split(between).filter((part) => part.includes('=')).map((part) => {
  const at = part.indexOf('=');
  return [part.slice(0, at), part.slice(at + 1)];
}));

/* CLIENT LIST as objects. */
export const clients = (text) => text.trim().split('\n').map((line) => pairs(line.trim(), ' '));
