/**
 * `attachment` under a name of anybody's choice (RFC 6266): an ASCII fall-back, and the whole name percent-encoded (RFC 8187).
 * Quotes, path separators, control characters and halves of surrogate pairs never reach the header.
 */
export function contentDisposition(downloadName: string): string {
  const name = downloadName.replace(/\p{Cs}/gu, '\ufffd').replace(/[\p{Cc}/\\]/gu, '_');
  const fallback = name.replace(/[^\x20-\x7e]|["%]/gu, '_');
  const encoded = encodeURIComponent(name).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${fallback}"; filename*=UTF-8''${encoded}`;
}
