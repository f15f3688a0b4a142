/** The core runs where there is no Node: nothing that index.ts reaches imports one of its modules, or names one of its globals. */
import { readFile } from 'node:fs/promises';
import { builtinModules, createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';
import { expect, it } from 'vitest';

const NODE_GLOBALS = ['Buffer', 'process', 'require', '__dirname', '__filename', 'global', 'setImmediate'];
const entry = fileURLToPath(new URL('index.ts', import.meta.url));

const isType = (statement: ts.Statement): boolean =>
  (ts.isImportDeclaration(statement) && statement.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword) ||
  (ts.isExportDeclaration(statement) && statement.isTypeOnly);

/** Modules that are there at run time. */
function importsOf(source: ts.SourceFile): string[] {
  return source.statements.flatMap((statement) =>
    (ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement)) &&
    statement.moduleSpecifier !== undefined &&
    ts.isStringLiteral(statement.moduleSpecifier) &&
    !isType(statement)
      ? [statement.moduleSpecifier.text]
      : [],
  );
}

/** Names that are used and declared nowhere in the file. */
function globalsOf(source: ts.SourceFile): string[] {
  const declared = new Set<string>();
  const used = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) {
      const { parent } = node;
      const isProperty =
        (ts.isPropertyAccessExpression(parent) && parent.name === node) ||
        ts.isPropertyAssignment(parent) ||
        ts.isPropertySignature(parent) ||
        ts.isMethodDeclaration(parent);
      if (ts.isVariableDeclaration(parent) || ts.isParameter(parent) || ts.isBindingElement(parent))
        declared.add(node.text);
      else if (!isProperty) used.add(node.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return NODE_GLOBALS.filter((name) => used.has(name) && !declared.has(name));
}

async function reachable(): Promise<Map<string, ts.SourceFile>> {
  const found = new Map<string, ts.SourceFile>();
  const open = [entry];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    const source = ts.createSourceFile(path, await readFile(path, 'utf8'), ts.ScriptTarget.ES2023, true);
    found.set(path, source);
    for (const name of importsOf(source)) {
      if (name.startsWith('.')) open.push(resolve(dirname(path), name));
      else {
        expect(builtinModules.includes(name) || name.startsWith('node:'), `${path} imports ${name}`).toBe(false);
        open.push(fileURLToPath(await resolveModule(name, path)));
      }
    }
  }
  return found;
}

async function resolveModule(name: string, from: string): Promise<string> {
  // Packages of ours and theirs are ES modules with an `import` or `default` export.
  const directory =
    createRequire(from)
      .resolve.paths(name)
      ?.map((path) => resolve(path, name)) ?? [];
  for (const path of directory) {
    const text = await readFile(resolve(path, 'package.json'), 'utf8').catch(() => undefined);
    if (text === undefined) continue;
    const { exports, module } = JSON.parse(text) as { exports?: Record<string, unknown>; module?: string };
    const target = conditional(exports?.['.']) ?? module;
    if (target !== undefined) return pathToFileURL(resolve(path, target)).href;
  }
  throw new Error(`${from}: ${name} is nowhere`);
}

function conditional(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null) return undefined;
  const conditions = value as Record<string, unknown>;
  return conditional(conditions.browser ?? conditions.import ?? conditions.default);
}

it('the core needs nothing of Node', async () => {
  const files = await reachable();
  const names = [...files.keys()];
  expect(names.some((name) => name.endsWith('sdk/src/terminal.ts'))).toBe(true);
  expect(names.some((name) => name.includes('/zod/'))).toBe(true);
  expect(names.filter((name) => name.includes('/sdk/src/node/') || /\/(ws|undici|tar-stream)\//.test(name))).toEqual(
    [],
  );
  const ours = names.filter((name) => /\/packages\/(sdk|contract)\//.test(name));
  for (const name of ours) expect(globalsOf(files.get(name) as ts.SourceFile), name).toEqual([]);
});
