// An error of one view replaces only that view.

import { Component, type ComponentChildren } from "preact";
import { Button, Empty } from "../ui/parts";

interface State {
  readonly hasFailed: boolean;
}

export class Boundary extends Component<{ children?: ComponentChildren }, State> {
  override state: State = { hasFailed: false };

  static override getDerivedStateFromError(): State {
    return { hasFailed: true };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error);
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <div role="alert">
        <Empty icon="alert" title="This view failed">
          <p class="quiet">It is a defect of the page; nothing was changed. The browser&apos;s console has the details.</p>
          <Button look="main" onClick={() => this.setState({ hasFailed: false })}>
            Try again
          </Button>
          <Button onClick={() => location.reload()}>Load the page again</Button>
        </Empty>
      </div>
    );
  }
}
