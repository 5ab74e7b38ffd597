"""What the page changes in answers on their way out: a script before Gradio's, and compressed updates."""
