from jakiro.training.messages import made_messages

PASSAGE = "An owl watched the harbour until the last lamp went out. " * 40


def test_a_longer_list_begins_with_the_shorter_one():
    assert made_messages(40)[:15] == made_messages(15)
    assert made_messages(15, seed=1) != made_messages(15)


def test_every_form_is_filled_and_messages_differ():
    messages = made_messages(3000, passages=[f"{number}. {PASSAGE}" for number in range(900)])
    assert not any(mark in message for message in messages for mark in ("{", "}"))
    assert len(set(messages)) > 2000


def test_texts_to_rewrite_come_from_the_passages_alone():
    with_passage = [message for message in made_messages(300, passages=[PASSAGE]) if "An owl watched" in message]
    assert 50 < len(with_passage) < 120
    assert max(map(len, with_passage)) < len(PASSAGE)
    about_passages = ("Summarize", "Rewrite", "Paraphrase", "Read the text")
    assert any(message.startswith(about_passages) for message in made_messages(300, passages=[PASSAGE]))
    assert not any(message.startswith(about_passages) for message in made_messages(300))
