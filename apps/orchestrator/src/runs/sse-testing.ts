/** The server-sent events of a whole answer. Comments are left out. */
export function parseServerSentEvents(text: string): { id: string; data: unknown }[] {
  return text
    .split('\n\n')
    .filter((block) => block !== '' && !block.startsWith(':'))
    .map((block) => {
      const lines = block.split('\n');
      const value = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? '';
      return { id: value('id'), data: JSON.parse(value('data')) };
    });
}
