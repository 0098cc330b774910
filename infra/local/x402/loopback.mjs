// How every server of this stack listens: on 127.0.0.1 and nowhere else.

const HOST = '127.0.0.1';

/** Starts `app` on `port`, any free one when it is 0, and returns its URL once connections are accepted. */
export function listen(app, port) {
  return new Promise((resolve, reject) => {
    const server = app.listen(port, HOST, (error) => {
      if (error) reject(error);
      else resolve(`http://${HOST}:${server.address().port}`);
    });
  });
}
