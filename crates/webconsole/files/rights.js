// What a user lacks, and how an admin gives it: each refusal of the server is explained for the view that is
// shown. Nothing is decided here: the server alone knows who may do what.

/* The rights with which every view works and changes what it can, and those with which every view works, but
   keys stay as they are, for ACL SETUSER. Both go beyond @admin, without which nobody is an admin here. */
export const ALL = '~* &* +@all';
export const LOOK = '~* &* +@admin +@read +@pubsub +@connection +info +memory';

/* Who asks, and the view for which: set by the frame of the page. `needs` are the rights that the view needs
   beside @admin to show all that it can, and `changes` those for its changes. */
const asking = { user: null, title: '', needs: '', changes: '' };

export const setUser = (name) => { asking.user = name; };

export const setView = ({ title, needs = '', changes = '' }) => { Object.assign(asking, { title, needs, changes }); };

/* Thrown when the user may not do something. */
export class RightMissing extends Error {}

export const isRefusal = (text) => text.startsWith('NOPERM');

/* An error of the server as the user is told it: a refusal with the rights that the view needs, and with the
   command that gives them. */
export function explained(text) {
  if (!isRefusal(text)) return text;
  // A refusal of a command names the user under whose rights it ran; one of a key or a channel does not.
  const user = /User (\S+) has no permissions/.exec(text)?.[1] ?? asking.user ?? 'default';
  const { title, needs, changes } = asking;
  if (needs === '') return `${text}.`;
  const more = changes === '' ? '' : ` (and, for changes, ${changes})`;
  return `${text}. The view “${title}” needs ${needs}, which an admin gives with ACL SETUSER ${user} ${needs}${more}`;
}

export const errorOf = (text) => (isRefusal(text) ? new RightMissing(explained(text)) : new Error(text));
