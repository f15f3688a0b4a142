/** Every `sh` and `ts` block of README.md and docs/ is run, in order, in a folder of its page's own, against a local stack. */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

const run = promisify(execFile);
const project = fileURLToPath(new URL('../..', import.meta.url));
const pages = [
  'README.md',
  ...(await readdir(join(project, 'docs'), { recursive: true }))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => `docs/${name}`),
];
const BLOCK = /^```(sh|ts)\n([\s\S]*?)^```$/gm;

let stack: LocalStack;
beforeAll(async () => {
  stack = await LocalStack.up();
}, 180_000);
afterAll(async () => {
  // A page may have ended the stack and started another one in its home.
  await stack?.fuse(['local', 'down']);
  await stack?.[Symbol.asyncDispose]();
}, 60_000);

const blocks = await Promise.all(
  pages.map(async (page) => {
    const text = await readFile(join(project, page), 'utf8');
    return { page, snippets: [...text.matchAll(BLOCK)].map(([, language, code]) => ({ language, code: code ?? '' })) };
  }),
);

describe.each(blocks.filter(({ snippets }) => snippets.length > 0))(
  '$page',
  { timeout: 300_000 },
  ({ page, snippets }) => {
    it.each(snippets.map((snippet, i) => ({ ...snippet, i, first: snippet.code.split('\n')[0] })))(
      '$i: $first',
      async ({ language, code, i }) => {
        const folder = await folderOf(page);
        const env = { ...process.env, ...stack.environmentVariables, FUSE_URL: stack.url, FUSE_TOKEN: stack.token };
        const cwd = code.startsWith('npm ') ? project : folder;
        if (language === 'sh') {
          const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', code], { cwd, env, maxBuffer: 16_000_000 });
          for (const answer of stdout.split('\n').filter((line) => line.startsWith('{"error"'))) expect.fail(answer);
          return;
        }
        expect(typeErrors(join(folder, `snippet-${i}.ts`), code)).toEqual([]);
        const { outputText } = ts.transpileModule(code, {
          compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 },
        });
        await writeFile(join(folder, `snippet-${i}.mjs`), outputText);
        await run(process.execPath, [`snippet-${i}.mjs`], { cwd: folder, env });
      },
    );
  },
);

async function folderOf(page: string): Promise<string> {
  const folder = join(stack.home, 'docs', page.replaceAll('/', '-'));
  await mkdir(folder, { recursive: true });
  await symlink(join(project, 'node_modules'), join(folder, 'node_modules')).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  return folder;
}

/** As a reader's own strict compiler would see it. */
function typeErrors(path: string, code: string): string[] {
  const options: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    types: ['node'],
    typeRoots: [join(project, 'node_modules/@types')],
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
  };
  ts.sys.writeFile(path.replace(/[^/]+$/, 'package.json'), '{"type":"module"}');
  ts.sys.writeFile(path, code);
  const program = ts.createProgram([path], options);
  return ts.getPreEmitDiagnostics(program).map((each) => ts.flattenDiagnosticMessageText(each.messageText, '\n'));
}
