// Search without a server. Browsers refuse web workers on file:// pages, so there the search worker runs in a hidden
// iframe with the same interface: postMessage in, onmessage out, neither at once, because the page expects no answer
// while it asks.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><html><body></body></html>");
      inner.document.close();
      inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      inner.importScripts = (...urls) => urls.reduce((last, next) => last.then(() => this.load(next)), Promise.resolve());
      this.load(url).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    load(url) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = url;
      const loaded = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
      this.frame.contentDocument.body.appendChild(script);
      return loaded;
    }

    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else setTimeout(() => this.frame.contentWindow?.onmessage({ data: structuredClone(data) }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
