import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const directory = fileURLToPath(new URL('steps', import.meta.url));

/** What is done inside the machine, in order: `steps/NN-….sh`, each with a title in its first line. @returns {Promise<{title: string, script: string}[]>} */
export async function readSteps() {
  const prelude = await readFile(join(directory, 'prelude.sh'), 'utf8');
  const names = (await readdir(directory)).filter((name) => /^\d\d-.*\.sh$/.test(name)).sort();
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(directory, name), 'utf8');
      return { title: text.slice(2, text.indexOf('\n')), script: prelude + text };
    }),
  );
}
