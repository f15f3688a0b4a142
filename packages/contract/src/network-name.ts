/** Host names of rules. Pure. */

export interface Problem {
  problem: string;
  hint: string;
}

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;
const MAX_NAME = 253;
/** What some resolver or parser takes for a number of an address. */
const NUMBER = /^(\d+|0x[0-9a-f]*)$/i;

/** Whether somebody might read it as an IPv4 address: the last part is a number. */
export const endsInNumber = (name: string): boolean => NUMBER.test(name.replace(/\.$/, '').split('.').at(-1) ?? '');

/** Lower case, in ASCII, no final dot; a `*.` in front stays. */
export function canonicalName(given: string): string | Problem {
  const isWildcard = given.startsWith('*.');
  const rest = isWildcard ? given.slice(2) : given;
  if (given === '*') return { problem: 'names every host', hint: 'Set "egress" to "internet", or name the hosts.' };
  if (rest.includes('*'))
    return {
      problem: 'has a "*" elsewhere than in front',
      hint: 'Write *.example.com: it stands for one label or more.',
    };
  const name = inAscii(rest);
  if (name === undefined)
    return { problem: 'is no host name', hint: 'Write a name such as pypi.org, *.npmjs.org, or an address range.' };
  if (endsInNumber(name)) return { problem: 'is an address, and no canonical one', hint: spellingHint(name) };
  const labels = name.split('.');
  if (name.length > MAX_NAME || !labels.every((label) => LABEL.test(label)))
    return {
      problem: 'is no host name',
      hint: 'Labels are 1 to 63 letters, digits, "-" or "_", with dots between, 253 characters in all; no scheme, no path.',
    };
  if (labels.length < 2)
    return isWildcard
      ? { problem: 'is everything under a top-level domain', hint: `Name the domain: *.example.${name}.` }
      : {
          problem: 'is a single label',
          hint: 'Names are looked up as they are, without a search domain: write it in full.',
        };
  return isWildcard ? `*.${name}` : name;
}

/** Unicode as punycode. Undefined: not a name at all. */
function inAscii(given: string): string | undefined {
  const name = given.endsWith('.') ? given.slice(0, -1) : given;
  if (/^[\x21-\x7e]*$/.test(name)) return name.toLowerCase();
  if (/[\s/?#@:\\[\]%]/.test(name)) return undefined;
  try {
    return new URL(`http://${name}`).hostname.replace(/\.$/, '');
  } catch {
    return undefined;
  }
}

/** What it would be read as, so that nobody has to guess. */
function spellingHint(name: string): string {
  const general = 'Addresses are four decimal numbers without leading zeros.';
  try {
    return `${general} This one is read as ${new URL(`http://${name}`).hostname} by some.`;
  } catch {
    return general;
  }
}
