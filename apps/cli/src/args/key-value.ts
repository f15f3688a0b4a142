/** Options that may be given several times and gather into one record. */
import { EnvName, Label } from '@fuse/contract';
import { InvalidArgumentError } from 'commander';

type Gathered = Readonly<Record<string, string>>;

/** `KEY=value`, or `KEY` alone for the value that it has here. */
export const gatherEnv =
  (here: Readonly<Record<string, string | undefined>>) =>
  (text: string, soFar: Gathered = {}): Gathered => {
    const at = text.indexOf('=');
    const name = at < 0 ? text : text.slice(0, at);
    if (!EnvName.safeParse(name).success)
      throw new InvalidArgumentError(`${JSON.stringify(name)} is not a variable name. Write KEY=value, or KEY alone.`);
    const value = at < 0 ? here[name] : text.slice(at + 1);
    if (value === undefined) throw new InvalidArgumentError(`${name} is not set here. Write ${name}=value.`);
    return { ...soFar, [name]: value };
  };

/** `NAME=value` of a secret, or `NAME` alone for the variable of that name here, which no process list shows. */
export const gatherSecret =
  (here: Readonly<Record<string, string | undefined>>) =>
  (text: string, soFar: Gathered = {}): Gathered => {
    const at = text.indexOf('=');
    const name = at < 0 ? text : text.slice(0, at);
    if (name === '') throw new InvalidArgumentError('Write NAME=value, or NAME alone.');
    const value = at < 0 ? here[name] : text.slice(at + 1);
    if (value === undefined) throw new InvalidArgumentError(`${name} is not set here. Set it, or write ${name}=value.`);
    return { ...soFar, [name]: value };
  };

/** `key=value`, both 1 to 63 letters, digits, "-", "_" and ".". */
export function gatherLabel(text: string, soFar: Gathered = {}): Gathered {
  const [key, value, ...more] = text.split('=');
  if (more.length > 0 || !Label.safeParse(key).success || !Label.safeParse(value).success)
    throw new InvalidArgumentError('Write key=value, each 1 to 63 letters, digits, "-", "_" or ".".');
  return { ...soFar, [key as string]: value as string }; // Label takes strings only
}

/** `key=value`; the value may hold anything. */
export function gatherPair(text: string, soFar: Gathered = {}): Gathered {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('Write key=value.');
  return { ...soFar, [text.slice(0, at)]: text.slice(at + 1) };
}

export const gatherText = (text: string, soFar: readonly string[] = []): readonly string[] => [...soFar, text];
