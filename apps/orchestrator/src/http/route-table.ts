/** Which methods a path has, so that a known path with another method is 405 and not 404. */
export class RouteTable {
  readonly #routes = new Map<string, { pattern: RegExp; methods: Set<string> }>();

  add(method: string | string[], url: string): void {
    const known = this.#routes.get(url) ?? { pattern: toPattern(url), methods: new Set<string>() };
    this.#routes.set(url, known);
    for (const one of [method].flat()) known.methods.add(one);
  }

  methodsOf(path: string): string[] {
    const methods = new Set<string>();
    for (const route of this.#routes.values())
      if (route.pattern.test(path)) for (const method of route.methods) methods.add(method);
    return [...methods].sort();
  }
}

function toPattern(url: string): RegExp {
  const parts = url.split('/').map((part) => {
    if (part === '*') return '.*';
    return part.startsWith(':') ? '[^/]+' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${parts.join('/')}$`);
}
