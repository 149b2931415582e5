// Helpers that create and find elements, and format numbers.

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", ...inside: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

export function button(className: string, title: string, act: () => void, ...inside: (Node | string)[]): HTMLButtonElement {
  const element = make("button", className, ...inside);
  element.type = "button";
  if (title) element.title = title;
  element.onclick = act;
  return element;
}

/** A number as text: 1234.5 as "1,235", 0.00001 as "1e−5". */
export function formatted(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return "unknown";
  const size = Math.abs(value);
  if (size < 1e-12) return "0";
  const text = size >= 1000 ? Math.round(value).toLocaleString("en") : size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

export function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** A long path or id without its middle, since its end tells most; the whole one belongs in the title. */
export function shortened(source: string, most = 60): string {
  const end = Math.ceil((2 * most) / 3);
  return source.length <= most ? source : `${source.slice(0, most - end - 1)}…${source.slice(-end)}`;
}
